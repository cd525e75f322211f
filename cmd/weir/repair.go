package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/access"
	"weir/internal/datadir"
)

func repairData(c *cobra.Command, data string, p *progress, asJSON bool) error {
	r, err := datadir.Repair(data, p.update)
	p.end()
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	if asJSON {
		err = json.NewEncoder(w).Encode(r)
	} else {
		printRepair(w, data, r)
	}
	if err := errors.Join(err, verdict(r.After)); err != nil {
		return err
	}
	return lost(r)
}

// loss is the error of a repair that made the directory usable, although data is lost or may be
// lost.
type loss struct{ what string }

func (l loss) Error() string { return "a server can use the directory again, " + l.what }

// lost returns a loss error if data is lost or may be lost, and nil otherwise.
func lost(r *datadir.Repaired) error {
	switch b := r.Before; {
	case b.MayBeLost > 0:
		return loss{"but some losses could not be identified: see above"}
	case b.Orphans > 0:
		return loss{fmt.Sprintf("but %d batches were set aside because their streams are lost", b.Orphans)}
	case !r.Lossless():
		return loss{"but data is lost: see above"}
	}
	return nil
}

func printRepair(w io.Writer, data string, r *datadir.Repaired) {
	printReport(w, data, r.Before)
	if len(r.Before.Damages) == 0 {
		return
	}
	fmt.Fprintln(w)
	if len(r.Aside) > 0 {
		fmt.Fprintf(w, "moved to %s: %s\n", r.Directory, strings.Join(r.Aside, ", "))
	}
	for _, l := range r.Losses {
		span := fmt.Sprint(l.From)
		if l.To > l.From {
			span += fmt.Sprintf(" to %d", l.To)
		}
		fmt.Fprintf(w, "lost from %s: %s\n", datadir.Name(l.Document), span)
	}
	for _, d := range r.Documents {
		fmt.Fprintf(w, "lost: %s\n", datadir.Name(d))
	}
	if r.Before.Orphans > 0 {
		fmt.Fprintf(w, "set aside: %d batches of lost streams\n", r.Before.Orphans)
	}
	for _, k := range r.Revoked {
		what, command := "key", "weir key create"
		if k.Kind == access.Management {
			what, command = "management token", "weir token create"
		}
		fmt.Fprintf(w, "revoked %s %s (%s, named %q), because a lost record may have revoked it; to replace it, run %s\n", what, k.ID, k.Masked, k.Name, command)
	}
	if r.Lossless() {
		fmt.Fprintln(w, "nothing is lost")
	}
	fmt.Fprintln(w, "after the repair:")
	printReport(w, data, r.After)
}

// mostStale is the maximum number of possibly outdated documents that the output names.
const mostStale = 20

// printDoubts reports losses that the check could not identify.
func printDoubts(w io.Writer, r *datadir.Report) {
	if r.Orphans > 0 && r.MayBeLost > 0 {
		fmt.Fprintf(w, "%d batches belong to no known stream: the record of the stream, or the record of its deletion, is lost\n", r.Orphans)
	} else if r.Orphans > 0 {
		fmt.Fprintf(w, "%d batches belong to lost streams\n", r.Orphans)
	}
	if r.MayBeLost == 0 {
		return
	}
	fmt.Fprintf(w, "up to %d more records may be lost; their content is unknown\n", r.MayBeLost)
	for i, key := range r.MayBeStale {
		if i == mostStale {
			fmt.Fprintf(w, "and %d more; --json lists all\n", len(r.MayBeStale)-i)
			break
		}
		fmt.Fprintf(w, "may be outdated or deleted: %s\n", datadir.Name(key))
	}
}
