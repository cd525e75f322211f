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
	"time"

	"github.com/spf13/cobra"

	"weir"
	"weir/internal/access"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

// repairResult is what a repair says when it is done.
type repairResult struct {
	*journal.Repair
	Directory string       `json:"directory"` // what is set aside is here
	Revoked   []access.Key `json:"revoked"`   // keys that may have been revoked in what is lost
}

func repairData(c *cobra.Command, data string, p *progress, asJSON bool) error {
	if err := foreign(data); err != nil {
		return err
	}
	result := repairResult{Revoked: []access.Key{}}
	now := weir.TimeOf(time.Now())
	var err error
	result.Repair, err = journal.RepairJournal(disk.OS(filepath.Join(data, journalDir)), journal.RepairOptions{
		CheckOptions: checkOptions(p),
		Aside: func() (disk.FS, error) {
			result.Directory = filepath.Join(data, "damaged-"+now.Std().UTC().Format("20060102T150405.000Z"))
			if err := os.Mkdir(result.Directory, 0o700); err != nil {
				return nil, err
			}
			return disk.OS(result.Directory), disk.OS(data).SyncDir()
		},
		Mend: func(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[engine.Header], unknown int) ([]byte, []engine.Header, error) {
			if _, ok := hub.StreamOf(d.Key); !ok {
				return nil, nil, nil
			}
			return hub.MendStream(d, low, note, entries, unknown, now)
		},
		Stale: func(d engine.Document) ([]byte, error) {
			value, key, err := access.Suspend(d, now)
			if value != nil {
				result.Revoked = append(result.Revoked, key)
			}
			return value, err
		},
	})
	p.end()
	if err != nil {
		return fmt.Errorf("repair %s: %w", data, err)
	}
	w := c.OutOrStdout()
	if asJSON {
		err = json.NewEncoder(w).Encode(result)
	} else {
		result.print(w, data)
	}
	return errors.Join(err, verdict(result.After), result.doubt())
}

// doubt is the error of a repair that cannot tell all that is lost.
func (r *repairResult) doubt() error {
	switch b := r.Before; {
	case b.MayBeLost > 0:
		return errors.New("the directory serves again, and nobody can tell all that is lost: see above")
	case b.Orphans > 0:
		return fmt.Errorf("the directory serves again, without %d batches of streams that are lost", b.Orphans)
	}
	return nil
}

func (r *repairResult) print(w io.Writer, data string) {
	printReport(w, data, r.Before)
	if len(r.Before.Damages) == 0 {
		return
	}
	fmt.Fprintln(w)
	if len(r.Aside) > 0 {
		fmt.Fprintf(w, "set aside in %s: %s\n", r.Directory, strings.Join(r.Aside, ", "))
	}
	for _, l := range r.Losses {
		span := fmt.Sprint(l.From)
		if l.To > l.From {
			span += fmt.Sprintf(" to %d", l.To)
		}
		fmt.Fprintf(w, "lost of %s: %s\n", documentName(l.Document), span)
	}
	for _, d := range r.Documents {
		fmt.Fprintf(w, "lost: %s\n", documentName(d))
	}
	if r.Before.Orphans > 0 {
		fmt.Fprintf(w, "set aside: %d batches of streams that are lost\n", r.Before.Orphans)
	}
	for _, k := range r.Revoked {
		fmt.Fprintf(w, "revoked, since it may have been before: key %s (%s, named %q): weir key create makes another\n", k.ID, k.Masked, k.Name)
	}
	if len(r.Losses)+len(r.Documents)+r.Before.Orphans+r.Before.MayBeLost == 0 {
		fmt.Fprintln(w, "nothing is lost")
	}
	fmt.Fprintln(w, "after the repair:")
	printReport(w, data, r.After)
}

// mostStale is how many documents are named that may be older than they were.
const mostStale = 20

// printDoubts says what nobody can tell.
func printDoubts(w io.Writer, r *journal.Report) {
	if r.Orphans > 0 && r.MayBeLost > 0 {
		fmt.Fprintf(w, "%d batches belong to streams whose own record is lost, or the record of their deletion\n", r.Orphans)
	} else if r.Orphans > 0 {
		fmt.Fprintf(w, "%d batches belong to streams that are lost\n", r.Orphans)
	}
	if r.MayBeLost == 0 {
		return
	}
	fmt.Fprintf(w, "up to %d more records may be lost: nobody can tell what they were\n", r.MayBeLost)
	for i, key := range r.MayBeStale {
		if i == mostStale {
			fmt.Fprintf(w, "and %d more: --json names them all\n", len(r.MayBeStale)-i)
			break
		}
		fmt.Fprintf(w, "may be older than it was, or deleted since: %s\n", documentName(key))
	}
}
