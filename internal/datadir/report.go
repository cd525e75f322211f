package datadir

import (
	"fmt"
	"strings"

	"weir/internal/access"
	"weir/internal/engine/journal"
	"weir/internal/engine/journal/repair"
	"weir/internal/hub"
)

// Report is the result of a check, and Damage is one piece of damage in it.
type (
	Report = repair.Report
	Damage = repair.Damage
)

// Counts returns the numbers of streams, projects and keys in a report.
func Counts(r *Report) (streams, projects, keys int) {
	return r.Documents[hub.DocumentKind], r.Documents[access.ProjectKind], r.Documents[access.KeyKind]
}

// outcomes has a text for each repair.Fate. The text says whether the damaged data is lost.
var outcomes = map[repair.Fate]string{
	repair.Dead:    "nothing is lost: the data was no longer in use",
	repair.Intact:  "nothing is lost: it can be rebuilt",
	repair.Mended:  "one bit is wrong and can be corrected",
	repair.Lost:    "lost",
	repair.Unknown: "content unknown",
}

// Describe returns a line about one piece of damage: the file, the offset, what was stored there,
// and the consequence.
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

// Name returns a readable name for the document under a key. It shows only the start of the digest
// of an API key, enough to tell keys apart.
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

// Found returns a phrase about damage that a scrub (a check of a running journal) found, such as
// "batches 7 to 9 of stream …".
func Found(f *journal.Finding) string {
	what := f.What
	switch {
	case f.To > f.From && strings.HasSuffix(what, "batch"):
		what = fmt.Sprintf("%ses %d to %d", what, f.From, f.To)
	case f.To > f.From:
		what = fmt.Sprintf("%ss %d to %d", what, f.From, f.To)
	case f.To > 0:
		what = fmt.Sprintf("%s %d", what, f.To)
	}
	if f.Document != "" {
		return what + " of " + Name(f.Document)
	}
	return what + " in " + f.File
}
