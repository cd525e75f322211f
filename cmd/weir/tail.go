package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"weir"
	"weir/client"
)

// tailing is one run of weir tail.
type tailing struct {
	r      remote
	cursor string
	raw    bool
	follow bool
	state  string // file that holds the position between runs

	saved  time.Time // when the position was last written to the state file
	out    *bufio.Writer
	screen *terminal // standard output
	stderr *terminal
}

func tailCommand() *cobra.Command {
	t := &tailing{}
	c := &cobra.Command{
		Use: "tail STREAM", Short: "Print the events of a stream", Args: args("STREAM"),
		Long: `Print the events of a stream, one per line, until the stream is closed, expires or is deleted, or the command gets a
signal. If the connection breaks or the server restarts, the command resumes where it stopped: it prints every event
once and in order.

On a terminal, each event is preceded by the sequence number and the time of its batch. With --json every batch is one
line: an object with its sequence number, its time and its events. Each batch of a raw stream is printed as a line of
base64; with --raw its bytes are written as they are.

Batches that were evicted before they could be read are reported on standard error. With --json they are reported on
standard output instead, as an object with the member "gap". If the stream was deleted and created again, or restored
from an older backup, that is reported in the same way, with the member "reset", and the command continues with the
oldest stored batch.

If the command ends before the stream does, for example because of a signal, it prints on standard error where to
resume. With --state it saves the position in a file instead. With --follow=false it prints no position.`,
		Example: `  weir tail demo000000000000000000
  weir tail 0000000000000000000001 --cursor 0 | jq .price
  weir tail 0000000000000000000001 --cursor 0 --follow=false > everything.jsonl
  weir tail 0000000000000000000001 --cursor 0 --state position >> everything.jsonl`,
		ValidArgsFunction: t.r.completeStream,
		RunE: func(c *cobra.Command, got []string) error {
			id, err := streamID(c, got[0])
			if err != nil {
				return err
			}
			from, err := parseFrom(t.cursor)
			if err == nil {
				from, err = t.restore(from)
			}
			if err != nil {
				return misuse{err, c.CommandPath()}
			}
			if t.raw && t.r.json {
				return misuse{errors.New("--raw and --json: choose one"), c.CommandPath()}
			}
			return t.r.run(c, func(ctx context.Context, cl *client.Client) error { return t.run(ctx, c, cl, id, from) })
		},
	}
	f := c.Flags()
	f.StringVar(&t.cursor, "cursor", "head", "where to `start`: head (only new batches), 0 (the oldest stored batch), or a sequence number (batches above it)")
	f.BoolVar(&t.raw, "raw", false, "write the bytes of a raw stream as they are")
	f.BoolVar(&t.follow, "follow", true, "wait for new batches; with --follow=false, stop at the current cursor")
	f.StringVar(&t.state, "state", "", "`file` that keeps the position: if it exists, the command resumes there, whatever --cursor says")
	complete(c, "cursor", "head\tonly new batches", "0\tfrom the oldest batch")
	return t.r.flags(c)
}

func parseFrom(s string) (client.From, error) {
	switch s {
	case "head":
		return client.Head, nil
	case "0":
		return client.Oldest, nil
	}
	seq, err := weir.ParseSeq(s)
	if err != nil {
		return client.From{}, fmt.Errorf("--cursor %q: not head, 0 or a sequence number", s)
	}
	return client.After(seq), nil
}

func (t *tailing) run(ctx context.Context, c *cobra.Command, cl *client.Client, id weir.StreamID, from client.From) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	t.screen, t.stderr = terminalOf(c.OutOrStdout()), terminalOf(c.ErrOrStderr())
	t.out = bufio.NewWriterSize(c.OutOrStdout(), 64<<10)
	s, err := cl.Stream(ctx, id) // fails soon if the service cannot be reached; the subscriber would try for a minute
	if err != nil {
		return err
	}
	if t.raw && s.Mode != weir.Raw {
		return errors.New("the stream is json; --raw is for raw streams")
	}
	t.r.began = true
	o := client.SubscriberOptions{From: from, OnRetry: func(err error, wait time.Duration) {
		if client.CodeOf(err) == weir.RateLimited {
			t.stderr.sayLimited(wait)
			return
		}
		t.stderr.say("weir: %v; retrying in %v", err, wait.Round(100*time.Millisecond))
	}}
	if !t.follow {
		if from == client.Head {
			return nil
		}
		o.Until = &s.Cursor
	}
	sub := cl.Subscriber(id, o)
	ended, err := t.printAll(ctx, sub)
	if at, ok := sub.Position(); ok && at.Seq > 0 && t.follow && t.state == "" && !ended {
		t.stderr.say("weir: resume with --cursor %v", at.Seq)
	}
	return cmp.Or(err, t.save(sub, true))
}

// printAll prints batches until the iteration ends. It reports whether the stream itself has ended:
// it was deleted, expired or was closed.
func (t *tailing) printAll(ctx context.Context, sub *client.Subscriber) (ended bool, err error) {
	for b, err := range sub.Batches(ctx) {
		if ctx.Err() != nil {
			return false, nil // a signal is the normal end
		}
		if err == nil {
			err = t.print(b)
		}
		if errors.Is(err, syscall.EPIPE) {
			return false, nil // the reader of the pipe, such as head, has exited
		}
		if err == nil {
			err = t.save(sub, false)
		}
		if err != nil {
			return false, err
		}
	}
	if t.follow {
		switch sub.End() {
		case client.StreamClosed:
			t.stderr.say("weir: the stream is closed")
		case client.StreamExpired:
			t.stderr.say("weir: the stream expired: it was not used for the length of its time to live, and was deleted")
		default:
			t.stderr.say("weir: the stream was deleted")
		}
	}
	return t.follow, nil
}

// restore returns the position in the state file. If there is no such file, it returns the
// parameter start.
func (t *tailing) restore(start client.From) (client.From, error) {
	if t.state == "" {
		return start, nil
	}
	text, err := os.ReadFile(t.state)
	if errors.Is(err, os.ErrNotExist) {
		return start, nil
	}
	var p client.Position
	if err == nil {
		err = p.UnmarshalText(bytes.TrimSpace(text))
	}
	if err != nil {
		return start, fmt.Errorf("--state %s: %w", t.state, err)
	}
	return client.Resume(p), nil
}

// saveEvery is how often the position is written to the state file while batches arrive. If the
// command is killed, its next run prints the batches since the last write again.
const saveEvery = 100 * time.Millisecond

// save writes the position to the state file. It replaces the file atomically, so that a command
// that is killed never leaves a partial position.
func (t *tailing) save(sub *client.Subscriber, last bool) error {
	p, ok := sub.Position()
	if t.state == "" || !ok || !last && time.Since(t.saved) < saveEvery {
		return nil
	}
	t.saved = time.Now()
	temporary := t.state + ".new"
	err := os.WriteFile(temporary, []byte(p.String()+"\n"), 0o644)
	if err == nil {
		err = os.Rename(temporary, t.state)
	}
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	return nil
}

// print writes a batch or a gap and flushes it.
func (t *tailing) print(b client.Batch) error {
	switch {
	case t.r.json:
		if err := t.printJSON(b); err != nil {
			return err
		}
	case b.Reset != nil:
		t.stderr.say("weir: %v; continuing with the oldest stored batch", b.Reset)
	case b.Gap != nil:
		t.stderr.say("weir: batches %d to %d were %s before they could be read", b.Gap.From, b.Gap.To, b.Gap.Reason)
	case t.raw:
		t.out.Write(b.Data)
	case b.ContentType != "":
		t.writePrefix(b)
		w := base64.NewEncoder(base64.StdEncoding, t.out)
		w.Write(b.Data)
		w.Close()
		t.out.WriteByte('\n')
	default:
		for _, e := range b.Events {
			t.writePrefix(b)
			t.out.Write(t.escapeControls(e))
			t.out.WriteByte('\n')
		}
	}
	return t.out.Flush()
}

// writePrefix writes the sequence number and time before an event on a terminal.
func (t *tailing) writePrefix(b client.Batch) {
	if t.screen.live {
		io.WriteString(t.out, t.screen.paint(yellow, fmt.Sprintf("%6d", b.Seq))+"  "+t.screen.paint(dim, b.Time.Std().Local().Format("15:04:05.000"))+"  ")
	}
}

// escapeControls escapes the control characters that JSON allows unescaped in strings (DEL and C1),
// because a terminal would act on them.
func (t *tailing) escapeControls(event []byte) []byte {
	if !t.screen.live || bytes.IndexFunc(event, unicode.IsControl) < 0 {
		return event
	}
	var b []byte
	for _, r := range string(event) {
		if unicode.IsControl(r) {
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// printJSON writes a batch in the form in which subscribers receive it.
func (t *tailing) printJSON(b client.Batch) error {
	e := json.NewEncoder(t.out)
	e.SetEscapeHTML(false) // print <, > and & unescaped
	switch {
	case b.Gap != nil:
		return e.Encode(map[string]*client.Gap{"gap": b.Gap})
	case b.Reset != nil:
		return e.Encode(map[string]any{"reset": map[string]any{"lost": b.Reset.Lost, "created_at": b.Reset.Created}})
	case b.ContentType != "":
		return e.Encode(struct {
			Seq         weir.Seq  `json:"seq"`
			TS          weir.Time `json:"ts"`
			ContentType string    `json:"content_type"`
			Data        []byte    `json:"data"`
		}{b.Seq, b.Time, b.ContentType, b.Data})
	}
	return e.Encode(struct {
		Seq    weir.Seq          `json:"seq"`
		TS     weir.Time         `json:"ts"`
		Events []json.RawMessage `json:"events"`
	}{b.Seq, b.Time, b.Events})
}
