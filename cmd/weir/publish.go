package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir"
	"weir/client"
)

// publishing is one run of weir publish.
type publishing struct {
	r        remote
	seq      string
	raw      bool
	batch    int
	inFlight int
	linger   time.Duration
	giveUp   time.Duration

	// Counts of what was read from the input and of what the service has stored.
	lines, read     atomic.Int64
	events, batches atomic.Int64
	duplicates      atomic.Int64
	evicted         atomic.Int64
	first, last     atomic.Int64 // lowest and highest acknowledged sequence number; first is -1 before the first acknowledgement
}

// chunk is the size in bytes of the largest batch that is made from raw input.
const chunk = 256 << 10

func publishCommand() *cobra.Command {
	p := &publishing{}
	c := &cobra.Command{
		Use: "publish STREAM", Short: "Publish standard input to a stream", Args: args("STREAM"),
		Long: `Publish standard input to a stream. Every line is a JSON event; empty lines are skipped. With --raw the bytes are
published as they are.

The command keeps many batches in flight and retries those that were not acknowledged. If the connection breaks or the
server restarts, every event is still stored once and in order. A line that is not JSON ends the run after everything
before it has been stored; the error gives the line number.

Events are grouped into batches by count, size and time. With --seq every line is a batch of its own: the first gets
that sequence number, the second the next one, and so on. If a run with --seq was interrupted, repeat it from its
beginning, or from any line whose sequence number you know. Batches that are already stored are not stored again. If the
batch stored under a number has been evicted, the line with that number is skipped and counted. If you repeat a run
without --seq, everything is published again.`,
		Example: `  seq 1 1000 | weir publish 0000000000000000000001
  tail -F app.log.json | weir publish 0000000000000000000001
  weir publish 0000000000000000000001 --seq 1 < events.jsonl
  weir publish 0000000000000000000001 --raw < video.ts`,
		ValidArgsFunction: p.r.completeStream,
		RunE: func(c *cobra.Command, got []string) error {
			id, err := streamID(c, got[0])
			if err != nil {
				return err
			}
			o, err := p.options()
			if err != nil {
				return misuse{err, c.CommandPath()}
			}
			return p.r.run(c, func(ctx context.Context, cl *client.Client) error { return p.run(ctx, c, cl, id, o) })
		},
	}
	f := c.Flags()
	f.StringVar(&p.seq, "seq", "", "sequence `number` of the first batch (default: the stream's cursor + 1); if given, every line is a batch unless --batch-events is given too")
	f.BoolVar(&p.raw, "raw", false, "publish the bytes of standard input to a raw stream")
	f.IntVar(&p.batch, "batch-events", 0, "maximum number of events in a batch (default: 1000, or 1 if --seq is given)")
	f.IntVar(&p.inFlight, "in-flight", 64, "maximum number of batches in flight, 1 to 512")
	f.DurationVar(&p.linger, "linger", 5*time.Millisecond, "time to wait for more events before sending a batch that is not full; has no effect with --seq")
	f.DurationVar(&p.giveUp, "give-up", 5*time.Minute, "give up if the service acknowledges nothing for this long; 0 means never, but if the service cannot be reached at the start, the command fails even with 0")
	return p.r.flags(c)
}

func (p *publishing) options() (client.PublisherOptions, error) {
	o := client.PublisherOptions{BatchEvents: p.batch, InFlight: p.inFlight, Linger: p.linger, GiveUp: p.giveUp, OnAck: p.acknowledged}
	p.first.Store(-1)
	if p.seq != "" {
		seq, err := weir.ParseSeq(p.seq)
		if err != nil {
			return o, fmt.Errorf("--seq %q: %w", p.seq, err)
		}
		o.StartAt, o.Linger = &seq, -1
		o.OnEvicted = func(weir.Seq) { p.evicted.Add(1) }
		if p.batch == 0 {
			o.BatchEvents = 1
		}
	}
	switch {
	case p.batch < 0:
		return o, fmt.Errorf("--batch-events %d: below 0", p.batch)
	case p.inFlight < 1 || p.inFlight > 512:
		return o, fmt.Errorf("--in-flight %d: not 1 to 512", p.inFlight)
	case p.giveUp < 0:
		return o, fmt.Errorf("--give-up %v: below 0", p.giveUp)
	case p.linger < 0:
		return o, fmt.Errorf("--linger %v: below 0", p.linger)
	}
	return o, nil
}

func (p *publishing) acknowledged(a weir.Ack) {
	p.first.CompareAndSwap(-1, int64(a.Seq))
	p.last.Store(int64(a.Seq))
	p.events.Add(int64(a.Accepted))
	p.batches.Add(1)
	if a.Duplicate {
		p.duplicates.Add(1)
	}
}

func (p *publishing) run(ctx context.Context, c *cobra.Command, cl *client.Client, id weir.StreamID, o client.PublisherOptions) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	t := terminalOf(c.ErrOrStderr())
	o.OnRetry, p.r.began = notices(t, &p.batches), true
	pub, err := cl.Publisher(ctx, id, o)
	if err != nil {
		return err
	}
	endOfStatus := t.refresh(p.status(t, c.InOrStdin()))
	read := make(chan error, 1)
	go func() { // this goroutine may still wait for input when a signal has ended the command
		if p.raw {
			read <- p.bytes(ctx, pub, c.InOrStdin())
		} else {
			read <- p.jsonLines(ctx, pub, c.InOrStdin())
		}
	}()
	select {
	case err = <-read:
	case <-ctx.Done():
		err = errors.New("interrupted")
	}
	closing := context.WithoutCancel(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
		var cancel context.CancelFunc
		closing, cancel = context.WithTimeout(closing, 5*time.Second) // time to store the events that have been read
		defer cancel()
	}
	closed := pub.Close(closing)
	endOfStatus()
	if _, failed := errors.AsType[*client.PublishError](closed); closed != nil && (err == nil || failed) {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("%w; %s", p.r.explain(err), p.summary())
	}
	return p.print(c.OutOrStdout(), id)
}

// maxLine is the length of the longest accepted line. It leaves room for white space around the
// largest event.
const maxLine = weir.MaxBody + 1<<20

// jsonLines adds every line as an event.
func (p *publishing) jsonLines(ctx context.Context, pub *client.Publisher, in io.Reader) error {
	r := bufio.NewReaderSize(in, 256<<10)
	var long []byte
	for {
		line, err := r.ReadSlice('\n')
		p.read.Add(int64(len(line)))
		if err == bufio.ErrBufferFull {
			if long = append(long, line...); len(long) > maxLine {
				return fmt.Errorf("line %d is longer than the largest batch", p.lines.Load()+1)
			}
			continue
		}
		if long != nil {
			line, long = append(long, line...), nil
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("read standard input: %w", err)
		}
		if len(line) > 0 {
			n := p.lines.Add(1)
			if n == 1 {
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			if fault := p.add(ctx, pub, line, n); fault != nil {
				return fault
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

func (p *publishing) add(ctx context.Context, pub *client.Publisher, line []byte, n int64) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	event, err := client.Event(json.RawMessage(line))
	if err != nil {
		return fmt.Errorf("line %d is not a JSON event: %w", n, err)
	}
	err = pub.AddEvent(ctx, event)
	if _, failed := errors.AsType[*client.PublishError](err); err == nil || failed || ctx.Err() != nil {
		return err
	}
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Code == weir.UnsupportedMediaType {
		return errors.New("the stream is raw; publish bytes to it with --raw")
	}
	return fmt.Errorf("line %d: %w", n, err)
}

// bytes publishes input as it arrives. With --seq it cuts the input into chunks of a fixed size, so
// that a repeated run publishes the same batches.
func (p *publishing) bytes(ctx context.Context, pub *client.Publisher, in io.Reader) error {
	b := make([]byte, chunk)
	for {
		var n int
		var err error
		if p.seq != "" {
			n, err = io.ReadFull(in, b)
		} else {
			n, err = in.Read(b)
		}
		p.read.Add(int64(n))
		if n > 0 {
			if err := pub.AddBytes(ctx, b[:n]); err != nil {
				if e, ok := errors.AsType[*weir.Error](err); ok && e.Code == weir.UnsupportedMediaType {
					return errors.New("the stream is json; publish lines to it without --raw")
				}
				return err
			}
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return nil
		case err != nil:
			return fmt.Errorf("read standard input: %w", err)
		}
	}
}

// summary describes in a sentence what the service has stored.
func (p *publishing) summary() string {
	skipped := ""
	switch n := p.evicted.Load(); {
	case n == 1:
		skipped = "; 1 batch was skipped, because the batch stored under its number has been evicted"
	case n > 1:
		skipped = fmt.Sprintf("; %d batches were skipped, because the batches stored under their numbers have been evicted", n)
	}
	if p.first.Load() < 0 {
		return "nothing was published" + skipped
	}
	what := "event"
	if p.raw {
		what = "chunk"
	}
	if p.events.Load() != 1 {
		what += "s"
	}
	under := fmt.Sprintf("sequence number %d", p.first.Load())
	if p.last.Load() > p.first.Load() {
		under = fmt.Sprintf("sequence numbers %d to %d", p.first.Load(), p.last.Load())
	}
	return fmt.Sprintf("%d %s stored under %s%s", p.events.Load(), what, under, skipped)
}

func (p *publishing) print(w io.Writer, id weir.StreamID) error {
	if !p.r.json {
		_, err := fmt.Fprintln(w, p.summary())
		return err
	}
	done := struct {
		Stream     weir.StreamID `json:"stream_id"`
		Events     int64         `json:"events"`
		Batches    int64         `json:"batches"`
		Duplicates int64         `json:"duplicates"` // batches that were already stored
		Evicted    int64         `json:"evicted"`    // batches that were skipped because the stream has evicted their sequence numbers
		First      *int64        `json:"first_seq"`
		Last       *int64        `json:"last_seq"`
	}{Stream: id, Events: p.events.Load(), Batches: p.batches.Load(), Duplicates: p.duplicates.Load(), Evicted: p.evicted.Load()}
	if done.Batches > 0 {
		done.First, done.Last = new(p.first.Load()), new(p.last.Load())
	}
	return json.NewEncoder(w).Encode(done)
}

// status returns a function that shows how many events are stored and how fast. If the input is a
// file, the function also shows when the run will end.
func (p *publishing) status(t *terminal, in io.Reader) func() {
	total := int64(0)
	if f, ok := in.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			total = st.Size()
		}
	}
	start, before, then := time.Now(), int64(0), time.Now()
	rate := 0.0
	return func() {
		now, stored := time.Now(), p.events.Load()
		const weight = 0.2 // weight of the newest sample in the average; there are five samples per second
		rate += weight * (float64(stored-before)/now.Sub(then).Seconds() - rate)
		before, then = stored, now
		line := fmt.Sprintf("%s events stored  %s/s", count(stored), count(int64(rate)))
		if got := p.read.Load(); total > 0 && got > 0 {
			left := time.Duration(float64(now.Sub(start)) * float64(total-got) / float64(got))
			line += fmt.Sprintf("  %d%%  ETA %v", 100*got/total, left.Round(time.Second))
		} else {
			line += fmt.Sprintf("  %s read", size(got))
		}
		t.show("%s", line)
	}
}

// notices returns a function that reports retries. The function reports every retry that waits for
// a rate limit. It reports any other retry only if the counter has changed since the previous
// retry.
func notices(t *terminal, progress *atomic.Int64) func(error, time.Duration) {
	var told atomic.Int64
	told.Store(-1)
	return func(err error, wait time.Duration) {
		now := progress.Load()
		switch first := told.Swap(now) != now; {
		case client.CodeOf(err) == weir.RateLimited: // these pauses are long, so each is reported
			t.sayLimited(wait)
		case first:
			t.say("weir: %v; retrying", err)
		}
	}
}
