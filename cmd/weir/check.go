package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weir/internal/datadir"
)

func checkCommand() *cobra.Command {
	var data string
	var asJSON, repair bool
	c := &cobra.Command{
		Use: "check", Short: "Verify a data directory that no server uses", Args: args(),
		Long: `Read every record in a data directory that no server uses, and report its contents and every damaged place: stream,
sequence, file and offset. The exit code is 1 if anything is damaged. Nothing is changed.

With --repair, damaged files are copied into a directory damaged-TIME beside the journal, and every intact record stays
in service. Lost sequences are not used again, and subscribers are told about them. If it cannot be known which records
were lost, keys that may have been revoked in them are revoked, and the exit code is 1.`,
		Example: "  weir check --data /var/lib/weir\n  weir check --repair --data /var/lib/weir",
		RunE: func(c *cobra.Command, _ []string) error {
			p := newProgress(c.ErrOrStderr(), 0)
			defer p.end()
			if repair {
				return repairData(c, data, p, asJSON)
			}
			return checkData(c, data, p, asJSON)
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "move damaged files aside and keep the rest in service")
	return operator(c, &data, &asJSON)
}

func checkData(c *cobra.Command, data string, p *progress, asJSON bool) error {
	report, err := datadir.Check(data, p.of)
	p.end()
	if err != nil {
		return err
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

// verdict is the error of a directory with damage.
func verdict(r *datadir.Report) error {
	if n := len(r.Damages); n > 0 {
		return fmt.Errorf("%d damaged %s", n, plural(n, "place", "places"))
	}
	return nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func printReport(w io.Writer, data string, r *datadir.Report) {
	streams, projects, keys := datadir.Counts(r)
	fmt.Fprintf(w, "%s: %d segments, %d spare, %s\n", data, r.Segments, r.Ready, size(r.Bytes))
	fmt.Fprintf(w, "%d streams, %d projects, %d keys\n", streams, projects, keys)
	fmt.Fprintf(w, "%d batches, %s; %d closed gaps\n", r.Batches, size(r.Payload), r.ClosedGaps)
	if r.LostBatches > 0 {
		fmt.Fprintf(w, "%d sequences were lost and given up by an earlier repair\n", r.LostBatches)
	}
	if r.Torn > 0 {
		fmt.Fprintf(w, "a crash cut the newest write short: %d bytes, none of them acknowledged\n", r.Torn)
	}
	for i := range r.Damages {
		fmt.Fprintln(w, datadir.Describe(&r.Damages[i]))
	}
	printDoubts(w, r)
	if len(r.Damages) == 0 {
		fmt.Fprintln(w, "no damage found")
	}
}
