package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir"
	"weir/client"
	"weir/internal/settings"
)

func streamCommand() *cobra.Command {
	var r remote
	return r.flags(group("stream", "Manage the streams of a service", listStreams(&r), createStream(&r), showStream(&r), setStream(&r), closeStream(&r), removeStream(&r)))
}

func listStreams(r *remote) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the streams that the key may read, newest first", Args: args(), Example: "  weir stream ls\n  weir stream ls --json",
		RunE: func(c *cobra.Command, _ []string) error {
			return r.run(c, func(ctx context.Context, cl *client.Client) error {
				list := []weir.Stream{}
				for s, err := range cl.Streams(ctx) {
					if err != nil {
						return err
					}
					list = append(list, s)
				}
				if r.json {
					return json.NewEncoder(c.OutOrStdout()).Encode(list)
				}
				w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tNAME\tMODE\tCURSOR\tSTORED\tMAX\tRETENTION\tCREATED")
				for _, s := range list {
					fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", s.ID, printable(s.Name), s.Mode, s.Cursor, size(s.BytesStored), size(s.MaxBytes), keptFor(s), s.CreatedAt)
				}
				return w.Flush()
			})
		},
	}
}

func createStream(r *remote) *cobra.Command {
	var n client.NewStream
	var id, mode, ttl string
	var l limits
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a stream and print its id", Args: args("NAME"),
		Example: "  weir stream create orders\n  weir stream create camera --mode raw --retention 1h --max-bytes 4GiB",
		RunE: func(c *cobra.Command, got []string) error {
			n.Name, n.ID, n.Mode = got[0], weir.StreamID(id), weir.Mode(mode)
			var err error
			if n.RetentionSeconds, n.MaxBytes, err = l.parse(); err != nil {
				return misuse{err, c.CommandPath()}
			}
			if n.TTLSeconds, err = settings.Seconds("--ttl", ttl); err != nil {
				return misuse{err, c.CommandPath()}
			}
			return r.run(c, func(ctx context.Context, cl *client.Client) error {
				s, err := cl.CreateStream(ctx, n)
				if err != nil {
					return err
				}
				return printResult(c, r.json, s, "%s\n", s.ID)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&id, "id", "", "stream `id`, "+weir.IDForm+" (default: random)")
	f.StringVar(&mode, "mode", "", "json or raw (default: json)")
	l.flags(f, " (default: 24h)", " (default: 256MiB)")
	f.StringVar(&ttl, "ttl", "", "time without use after which the stream is deleted, 1s to 365d (default: never)")
	complete(c, "mode", "json\tevents are JSON values", "raw\ta batch is bytes")
	return c
}

func showStream(r *remote) *cobra.Command {
	c := &cobra.Command{Use: "show ID", Short: "Show the state of a stream", Example: "  weir stream show demo000000000000000000"}
	return ofStream(r, c, func(ctx context.Context, cl *client.Client, id weir.StreamID) error {
		s, err := cl.Stream(ctx, id)
		if err != nil {
			return err
		}
		if r.json {
			return json.NewEncoder(c.OutOrStdout()).Encode(s)
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "id\t%s\nname\t%s\nmode\t%s\ncursor\t%d\nstored\t%s (%d bytes)\nmax\t%s (%d bytes)\nretention\t%s\ncreated\t%s\n",
			s.ID, printable(s.Name), s.Mode, s.Cursor, size(s.BytesStored), s.BytesStored, size(s.MaxBytes), s.MaxBytes, keptFor(s), s.CreatedAt)
		if s.TTLSeconds > 0 {
			fmt.Fprintf(w, "ttl\t%v\n", time.Duration(s.TTLSeconds)*time.Second)
		}
		if s.Closed {
			fmt.Fprintln(w, "closed\tyes")
		}
		return w.Flush()
	})
}

func closeStream(r *remote) *cobra.Command {
	c := &cobra.Command{
		Use: "close ID", Short: "Close a stream for good", Example: "  weir stream close 0000000000000000000001",
		Long: `Close a stream for good. It takes no more batches, and its stored batches can still be read. Subscribers receive
everything that is stored, and then the end of the stream. Open gaps are closed first.`,
	}
	return ofStream(r, c, func(ctx context.Context, cl *client.Client, id weir.StreamID) error {
		s, err := cl.CloseStream(ctx, id)
		if err != nil {
			return err
		}
		return printResult(c, r.json, s, "closed %s\n", id)
	})
}

func setStream(r *remote) *cobra.Command {
	var l limits
	var change client.StreamChange
	c := &cobra.Command{
		Use: "set ID", Short: "Change the name or the limits of a stream",
		Long: `Change the name or the limits of a stream, and print its id. Batches that exceed the new limits are evicted at once.
Higher limits do not bring evicted batches back.`,
		Example: "  weir stream set 0000000000000000000001 --name orders\n  weir stream set 0000000000000000000001 --retention 7d --max-bytes 4GiB",
	}
	l.flags(c.Flags(), "", "")
	c.Flags().StringVar(&change.Name, "name", "", "new name, 1 to 128 characters")
	ofStream(r, c, func(ctx context.Context, cl *client.Client, id weir.StreamID) error {
		s, err := cl.UpdateStream(ctx, id, change)
		if err != nil {
			return err
		}
		return printResult(c, r.json, s, "%s\n", s.ID)
	})
	run := c.RunE
	c.RunE = func(c *cobra.Command, got []string) (err error) {
		if change.RetentionSeconds, change.MaxBytes, err = l.parse(); err != nil {
			return misuse{err, c.CommandPath()}
		}
		if change == (client.StreamChange{}) {
			return misuse{errors.New("nothing to change: set --name, --retention or --max-bytes"), c.CommandPath()}
		}
		return run(c, got)
	}
	return c
}

// limits are the flags for the limits of a stream.
type limits struct{ retention, maxBytes string }

func (l *limits) flags(f *pflag.FlagSet, retention, maxBytes string) {
	f.StringVar(&l.retention, "retention", "", "time to keep a batch, 1m to 30d"+retention)
	f.StringVar(&l.maxBytes, "max-bytes", "", "maximum size of the stream, 1MiB to 4GiB"+maxBytes)
}

// parse returns the values of the flags, and 0 for a flag that is not set.
func (l *limits) parse() (retentionSeconds, maxBytes int64, err error) {
	if retentionSeconds, err = settings.Seconds("--retention", l.retention); err != nil {
		return 0, 0, err
	}
	if l.maxBytes != "" {
		n, ok := settings.ParseSize(l.maxBytes)
		if !ok {
			return 0, 0, fmt.Errorf("--max-bytes %q: not a size such as 268435456 or 256MiB", l.maxBytes)
		}
		maxBytes = n
	}
	return retentionSeconds, maxBytes, nil
}

func removeStream(r *remote) *cobra.Command {
	c := &cobra.Command{Use: "rm ID", Short: "Delete a stream and all its batches", Example: "  weir stream rm 0000000000000000000001"}
	return ofStream(r, c, func(ctx context.Context, cl *client.Client, id weir.StreamID) error {
		if err := cl.DeleteStream(ctx, id); err != nil {
			return err
		}
		return printResult(c, r.json, map[string]weir.StreamID{"deleted": id}, "deleted %s\n", id)
	})
}

// ofStream gives a command one argument, the id of a stream, and makes it call the function do with
// this id.
func ofStream(r *remote, c *cobra.Command, do func(context.Context, *client.Client, weir.StreamID) error) *cobra.Command {
	c.Args, c.ValidArgsFunction = args("ID"), r.completeStream
	c.RunE = func(c *cobra.Command, got []string) error {
		id, err := streamID(c, got[0])
		if err != nil {
			return err
		}
		return r.run(c, func(ctx context.Context, cl *client.Client) error { return do(ctx, cl, id) })
	}
	return c
}

// keptFor returns the retention of a stream in a short form, such as 24h instead of 24h0m0s.
func keptFor(s weir.Stream) string {
	text := (time.Duration(s.RetentionSeconds) * time.Second).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if rest, ok := strings.CutSuffix(text, zero); ok {
			text = rest + zero[:1]
		}
	}
	return text
}

// printable quotes a text that contains control characters, because a terminal might obey them.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}

// size formats a number of bytes.
func size(n int64) string {
	for _, u := range settings.Units {
		if n >= u.Bytes {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(u.Bytes), 'f', 1, 64), ".0") + " " + u.Name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

// complete offers the values of a flag to shell completion.
func complete(c *cobra.Command, flag string, values ...cobra.Completion) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // a bug in this program: the flag does not exist
	}
}
