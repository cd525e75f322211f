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
		Use: "check", Short: "Verify a data directory that no server is using", Args: args(),
		Long: `Read every record in a data directory that no server is using. Report what the directory contains and, for any damage,
the stream, sequence number, file and offset. The exit code is 1 if anything is damaged. Without --repair nothing is
changed.

With --repair, damaged files are first copied to a directory damaged-TIME beside the journal. Every intact record is
kept. The sequence numbers of lost batches are not used again, and subscribers receive an event for them. If it
cannot be determined which records were lost, they may include the revocation of a key. In that case every key that may
have been revoked is revoked again. The exit code is 3 if anything is lost, or may be lost because nothing proves that it
was complete.`,
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
	c.Flags().BoolVar(&repair, "repair", false, "copy damaged files aside, and rebuild the journal from the intact records")
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
		fmt.Fprintf(w, "sequence numbers given up as lost by an earlier repair: %d\n", r.LostBatches)
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
