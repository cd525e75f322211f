package datadir

import (
	"fmt"
	"strings"

	"weir/internal/access"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

// Report is what a check found, and Damage one damaged place in it.
type (
	Report = journal.Report
	Damage = journal.Damage
)

// Counts are the streams, projects and keys of a report.
func Counts(r *Report) (streams, projects, keys int) {
	return r.Documents[hub.DocumentKind], r.Documents[access.ProjectKind], r.Documents[access.KeyKind]
}

// outcomes say what becomes of damage.
var outcomes = map[journal.Fate]string{
	journal.Dead:    "nothing is lost: the data was no longer in use",
	journal.Intact:  "nothing is lost: it can be rebuilt",
	journal.Mended:  "one bit is wrong and can be corrected",
	journal.Lost:    "lost",
	journal.Unknown: "content unknown",
}

// Describe is a line about one damaged place: file, offset, what was there and what becomes of it.
func Describe(d *Damage) string {
	what := d.What
	if d.Seq != nil {
		what += fmt.Sprintf(" %d", *d.Seq)
	}
	if d.Document != "" {
		what += " of " + Name(d.Document)
	}
	return fmt.Sprintf("%s at %d: %s: %s (%s)", d.File, d.Offset, what, d.Why, outcomes[d.Fate])
}

// Name is how people refer to the document under a key. It shows only the start of the digest of an
// API key, enough to tell keys apart.
func Name(key string) string {
	if key == "" {
		return "a document whose name is lost too"
	}
	kind, id, _ := strings.Cut(key, "/")
	if _, ok := hub.StreamOf(key); !ok {
		id = id[:min(len(id), 12)] + "…"
	}
	return kind + " " + id
}
