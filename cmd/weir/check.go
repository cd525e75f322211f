package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir"
	"weir/internal/datadir"
)

func checkCommand() *cobra.Command {
	var data, drop string
	var asJSON, repair, largest bool
	c := &cobra.Command{
		Use: "check", Short: "Verify a data directory that no server is using", Args: args(),
		Long: `Read every record in a data directory that no server is using. Report what the directory contains and, for any damage,
the stream, sequence number, file and offset. The exit code is 1 if anything is damaged. Without --repair
and --drop, the command changes nothing, with one exception: it completes a repair that was interrupted in its last step.

With --repair, a new journal replaces the damaged one in one step. Damaged files are moved to a directory damaged-TIME
beside the journal. Every intact record is kept. The sequence numbers of lost batches are not used again, and
subscribers receive an event for them. A lost record may have been the revocation of a key. If the command cannot
determine which records were lost, it revokes every key that could be affected, to be safe. The exit code is 3 if
anything was lost, or if the command cannot prove that nothing was lost.

A server keeps an index of all batches in memory. If the index no longer fits, use --largest to list the 20 streams
with the most batches, and --drop to delete one of them. Both need little memory, and verify only what they need.`,
		Example: "  weir check --data /var/lib/weir\n  weir check --repair --data /var/lib/weir\n  weir check --largest --data /var/lib/weir\n" +
			"  weir check --drop 0000000000000000000001 --data /var/lib/weir",
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case repair && largest || repair && drop != "" || largest && drop != "":
				return misuse{errors.New("--repair, --largest and --drop cannot be combined"), c.CommandPath()}
			case drop != "":
				return dropStream(c, data, drop, asJSON)
			case largest:
				return listLargest(c, data, asJSON)
			}
			p := newProgress(c.ErrOrStderr(), 0)
			defer p.end()
			if repair {
				return repairData(c, data, p, asJSON)
			}
			return checkData(c, data, p, asJSON)
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "set damaged files aside, and rebuild the journal from the intact records")
	c.Flags().BoolVar(&largest, "largest", false, "do not check; list the streams with the most batches")
	c.Flags().StringVar(&drop, "drop", "", "do not check; delete the stream with this `id` and all its batches")
	return operator(c, &data, &asJSON)
}

func checkData(c *cobra.Command, data string, p *progress, asJSON bool) error {
	report, err := datadir.Check(data, p.update)
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

// mostListed is the number of streams that --largest lists.
const mostListed = 20

func listLargest(c *cobra.Command, data string, asJSON bool) error {
	all, err := datadir.Streams(data)
	if err != nil {
		return err
	}
	all = all[:min(len(all), mostListed)]
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(all)
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tPROJECT\tNAME\tBATCHES\tSTORED")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", s.ID, s.Project, printable(s.Name), s.Batches, size(s.Bytes))
	}
	return w.Flush()
}

func dropStream(c *cobra.Command, data, id string, asJSON bool) error {
	stream, err := weir.ParseStreamID(id)
	if err != nil {
		return misuse{fmt.Errorf("--drop %q: %w", id, err), c.CommandPath()}
	}
	if err := datadir.DropStream(data, stream); err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(map[string]weir.StreamID{"deleted": stream})
	}
	fmt.Fprintf(c.OutOrStdout(), "deleted %s\n", stream)
	return nil
}

// verdict returns an error if the directory is damaged, and nil otherwise.
func verdict(r *datadir.Report) error {
	if n := len(r.Damages); n > 0 {
		return errors.New(counted(n, "damaged place", "damaged places"))
	}
	return nil
}

// counted returns a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

func printReport(w io.Writer, data string, r *datadir.Report) {
	streams, projects, keys := datadir.Counts(r)
	fmt.Fprintf(w, "%s: %s, %d spare, %s\n", data, counted(r.Segments, "segment", "segments"), r.Ready, size(r.Bytes))
	fmt.Fprintf(w, "%s, %s, %s\n", counted(streams, "stream", "streams"), counted(projects, "project", "projects"), counted(keys, "key", "keys"))
	fmt.Fprintf(w, "%s, %s; %s\n", counted(r.Batches, "batch", "batches"), size(r.Payload), counted(r.ClosedGaps, "closed gap", "closed gaps"))
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
