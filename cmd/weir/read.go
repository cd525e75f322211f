package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir"
	"weir/client"
	"weir/internal/settings"
)

func readCommand() *cobra.Command {
	t := &tailing{}
	var from, since string
	var last, limit int
	c := &cobra.Command{
		Use: "read STREAM", Short: "Print the stored events of a stream", Args: args("STREAM"),
		Long: `Print the stored events of a stream, one per line, and stop at the newest. Without a flag, the command starts with the
oldest stored batch. The output has the same form as that of weir tail, which also waits for new events.`,
		Example: `  weir read demo000000000000000000 --last 10
  weir read 0000000000000000000001 --from 1200 --limit 100
  weir read 0000000000000000000001 --since 2h --json
  weir read 0000000000000000000001 --since 2026-11-15T00:00:00Z`,
		ValidArgsFunction: t.r.completeStream,
		RunE: func(c *cobra.Command, got []string) error {
			id, err := streamID(c, got[0])
			if err != nil {
				return err
			}
			o := client.PageOptions{Last: last}
			if o.From, err = weir.ParseSeq(from); err != nil {
				return misuse{fmt.Errorf("--from %q: not a sequence number", from), c.CommandPath()}
			}
			if o.Since, err = parseSince(since); err != nil {
				return misuse{err, c.CommandPath()}
			}
			f := c.Flags()
			switch {
			case f.Changed("last") && (last < 1 || last > weir.MaxBatches):
				return misuse{fmt.Errorf("--last %d: not a number from 1 to %d", last, weir.MaxBatches), c.CommandPath()}
			case limit < 0:
				return misuse{fmt.Errorf("--limit %d: below 0", limit), c.CommandPath()}
			case f.Changed("from") && f.Changed("last") || f.Changed("from") && f.Changed("since") || f.Changed("last") && f.Changed("since"):
				return misuse{errors.New("--from, --last and --since: choose one"), c.CommandPath()}
			case t.raw && t.r.json:
				return misuse{errors.New("--raw and --json: choose one"), c.CommandPath()}
			}
			return t.r.run(c, func(ctx context.Context, cl *client.Client) error { return t.read(ctx, c, cl, id, &o, &limit) })
		},
	}
	f := c.Flags()
	f.StringVar(&from, "from", "0", "first sequence `number` to print; 0 means the oldest stored batch")
	f.IntVar(&last, "last", 0, "print only this `number` of newest batches, up to 1000")
	f.StringVar(&since, "since", "", "print the batches stored at this `time` or later: a timestamp such as 2026-11-15T00:00:00Z, or a period such as 90m or 7d before now")
	f.IntVar(&limit, "limit", 0, "maximum `number` of batches to print; 0 means all")
	f.BoolVar(&t.raw, "raw", false, "write the bytes of a raw stream as they are")
	return t.r.flags(c)
}

// parseSince parses a timestamp, or a period before now. For an empty text it returns the zero
// time.
func parseSince(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if period, ok := settings.ParsePeriod(s); ok {
		return time.Now().Add(-period), nil
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("--since %q: neither a timestamp such as 2026-11-15T00:00:00Z nor a period such as 90m or 7d", s)
	}
	return at, nil
}

// read prints up to limit batches, or all if limit is 0. After each batch it updates o and limit, so
// that a second call, after an error, resumes with the next batch.
func (t *tailing) read(ctx context.Context, c *cobra.Command, cl *client.Client, id weir.StreamID, o *client.PageOptions, limit *int) error {
	t.screen, t.stderr = terminalOf(c.OutOrStdout()), terminalOf(c.ErrOrStderr())
	t.out = bufio.NewWriterSize(c.OutOrStdout(), 64<<10)
	if t.raw {
		s, err := cl.Stream(ctx, id)
		if err != nil {
			return err
		}
		if s.Mode != weir.Raw {
			return errors.New("the stream is json; --raw is for raw streams")
		}
	}
	if o.Limit = weir.MaxBatches; *limit > 0 {
		o.Limit = min(*limit, o.Limit)
	}
	for b, err := range cl.Batches(ctx, id, *o) {
		if err == nil {
			err = t.print(b)
		}
		if errors.Is(err, syscall.EPIPE) {
			return nil // the reader of the pipe, such as head, has exited
		}
		if err != nil {
			return err
		}
		if b.Gap != nil {
			*o = client.PageOptions{From: b.Gap.To + 1}
			continue
		}
		*o = client.PageOptions{From: b.Seq + 1}
		if *limit--; *limit == 0 {
			return nil
		}
	}
	return nil
}
