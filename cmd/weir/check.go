package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/access"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

func checkCommand() *cobra.Command {
	var data string
	var asJSON, repair bool
	c := &cobra.Command{
		Use: "check", Short: "Verify everything in a data directory that no server uses", Args: args(),
		Long: `Read every record in a data directory that no server uses, and say what is there and what is damaged: stream, sequence,
file and offset. The exit code is 1 when something is damaged. Nothing is changed.

With --repair, damaged files are copied into a directory damaged-TIME beside the journal, and what is whole in them
goes on to serve. What is lost stays lost: its sequences are not used again, and subscribers are told. Where nobody
can tell what was lost, keys that may have been revoked there are revoked, and the exit code is 1.`,
		Example: "  weir check --data /var/lib/weir\n  weir check --repair --data /var/lib/weir",
		RunE: func(c *cobra.Command, _ []string) error {
			dir := filepath.Join(data, journalDir)
			if _, err := os.Stat(dir); err != nil {
				return fmt.Errorf("there is no data in %s (--data names the directory)", data)
			}
			p := newProgress(c.ErrOrStderr(), 0)
			defer p.end()
			var err error
			if repair {
				err = repairData(c, data, p, asJSON)
			} else {
				err = checkData(c, data, p, asJSON)
			}
			if errors.Is(err, disk.ErrLocked) {
				return fmt.Errorf("a server runs on %s: stop it first", data)
			}
			return err
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "set damaged files aside, so that the rest serves")
	return operator(c, &data, &asJSON)
}

// checkOptions say what documents mean.
func checkOptions(p *progress) journal.CheckOptions {
	o := journal.CheckOptions{Document: func(d engine.Document, note []byte, entries iter.Seq[engine.Header]) error {
		if _, ok := hub.StreamOf(d.Key); ok {
			return hub.CheckStream(d, note, entries)
		}
		return access.CheckDocument(d)
	}}
	if p != nil {
		o.Progress = func(done, total int64) {
			p.total = total
			p.at(done)
		}
	}
	return o
}

func checkData(c *cobra.Command, data string, p *progress, asJSON bool) error {
	report, err := journal.Check(disk.OS(filepath.Join(data, journalDir)), checkOptions(p))
	p.end()
	if err != nil {
		return fmt.Errorf("check %s: %w", data, err)
	}
	w := c.OutOrStdout()
	if asJSON {
		if err := json.NewEncoder(w).Encode(report); err != nil {
			return err
		}
	} else {
		printReport(w, data, report)
	}
	return verdict(report)
}

// verdict is the error of a directory that is not whole.
func verdict(r *journal.Report) error {
	if n := len(r.Damages); n > 0 {
		return fmt.Errorf("%d %s damaged", n, plural(n, "place is", "places are"))
	}
	return nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func printReport(w io.Writer, data string, r *journal.Report) {
	fmt.Fprintf(w, "%s: %d segments, %d more ready, %s\n", data, r.Segments, r.Ready, inBytes(r.Bytes))
	fmt.Fprintf(w, "%d streams, %d projects, %d keys\n", r.Documents["stream"], r.Documents["project"], r.Documents["key"])
	fmt.Fprintf(w, "%d batches, %s; %d closed gaps\n", r.Batches, inBytes(r.Payload), r.ClosedGaps)
	if r.LostBatches > 0 {
		fmt.Fprintf(w, "%d sequences were given up by an earlier repair\n", r.LostBatches)
	}
	if r.Torn > 0 {
		fmt.Fprintf(w, "the newest write was cut short by a crash: %d bytes that nobody was told of\n", r.Torn)
	}
	for i := range r.Damages {
		fmt.Fprintln(w, inWords(&r.Damages[i]))
	}
	printDoubts(w, r)
	if len(r.Damages) == 0 {
		fmt.Fprintln(w, "everything is whole")
	}
}

// fates are what is said of damage.
var fates = map[journal.Fate]string{
	journal.Dead: "nothing is lost: it was of no use any more", journal.Intact: "nothing is lost: it can be made again",
	journal.Mended: "one bit is wrong, and can be set right", journal.Lost: "lost", journal.Unknown: "nobody can tell what was there",
}

// inWords is a damage as a person reads it: file, offset, what it was and what becomes of it.
func inWords(d *journal.Damage) string {
	what := d.What
	if d.Seq != nil {
		what += fmt.Sprintf(" %d", *d.Seq)
	}
	if d.Document != "" {
		what += " of " + documentName(d.Document)
	}
	return fmt.Sprintf("%s at %d: %s: %s (%s)", d.File, d.Offset, what, d.Why, fates[d.Fate])
}

// documentName is what a document is called; of a key no more than tells it apart.
func documentName(key string) string {
	if key == "" {
		return "something whose name is lost as well"
	}
	kind, id, _ := strings.Cut(key, "/")
	if kind != "stream" {
		id = id[:min(len(id), 12)] + "…"
	}
	return kind + " " + id
}
