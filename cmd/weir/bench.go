package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir"
	"weir/client"
	"weir/internal/settings"
)

// load is one run of weir bench.
type load struct {
	r           remote
	only        string
	span        time.Duration
	size        string
	publishers  int
	inFlight    int
	subscribers int
	rate        int

	event   json.RawMessage
	bytes   int64
	stderr  *terminal
	made    []weir.StreamID
	figures []figure
}

// figure is the result of one part of the load.
type figure struct {
	Part     string  `json:"part"`
	Events   int64   `json:"events"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"events_per_second"`
	MBps     float64 `json:"megabytes_per_second"`
	P50      float64 `json:"p50_ms"` // time until the acknowledgement or the delivery; 0 for catch-up
	P99      float64 `json:"p99_ms"`
	Slowest  float64 `json:"slowest_ms"`
	Failures int64   `json:"retries"`
}

var parts = []string{"publish", "fan-out", "catch-up"}

func benchCommand() *cobra.Command {
	l := &load{}
	c := &cobra.Command{
		Use: "bench", Short: "Measure a service under load", Args: args(),
		Long: `Measure a service under load, over the network like any client. The command creates its own streams and deletes them
afterwards. There are three parts:

  publish    publishers that each keep many one-event batches in flight; the latency is the time until the
             acknowledgement, that is, until the batch is synced to disk
  fan-out    one publisher and many subscribers; the latency is the time from publish to delivery
  catch-up   one subscriber that reads everything that one publisher stored, from the beginning

The load generator needs CPU time too: on the same machine as the service, rates are lower and latencies higher than
with two machines.`,
		Example: "  weir bench\n  weir bench --only publish --publishers 8 --size 64KiB --for 30s\n  weir bench --json",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := l.check(); err != nil {
				return misuse{err, c.CommandPath()}
			}
			return l.r.run(c, func(ctx context.Context, cl *client.Client) error { return l.run(ctx, c, cl) })
		},
	}
	f := c.Flags()
	f.StringVar(&l.only, "only", "", "run one `part` only: publish, fan-out or catch-up")
	f.DurationVar(&l.span, "for", 5*time.Second, "duration of the publish and fan-out parts")
	f.StringVar(&l.size, "size", "1KiB", "size of an event, at least 40 bytes")
	f.IntVar(&l.publishers, "publishers", 4, "number of publishers, each with its own stream and connection")
	f.IntVar(&l.inFlight, "in-flight", 64, "batches in flight per publisher, 1 to 512")
	f.IntVar(&l.subscribers, "subscribers", 100, "number of subscribers in the fan-out part")
	f.IntVar(&l.rate, "rate", 100, "events per second in the fan-out part")
	complete(c, "only", parts...)
	return l.r.flags(c)
}

func (l *load) check() error {
	n, ok := settings.ParseSize(l.size)
	switch {
	case l.only != "" && !slices.Contains(parts, l.only):
		return fmt.Errorf("--only %q: not publish, fan-out or catch-up", l.only)
	case l.span <= 0:
		return fmt.Errorf("--for %v: must be above 0", l.span)
	case !ok || n < 40 || n > weir.MaxBody-64:
		return fmt.Errorf("--size %q: not a size from 40 bytes to 8 MiB", l.size)
	case l.publishers < 1:
		return fmt.Errorf("--publishers %d: must be above 0", l.publishers)
	case l.inFlight < 1 || l.inFlight > 512:
		return fmt.Errorf("--in-flight %d: not 1 to 512", l.inFlight)
	case l.subscribers < 1:
		return fmt.Errorf("--subscribers %d: must be above 0", l.subscribers)
	case l.rate < 1:
		return fmt.Errorf("--rate %d: must be above 0", l.rate)
	}
	l.bytes = n
	return nil
}

func (l *load) run(ctx context.Context, c *cobra.Command, cl *client.Client) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	l.stderr, l.r.began = terminalOf(c.ErrOrStderr()), true
	l.event = json.RawMessage(`"` + strings.Repeat("x", int(l.bytes)-2) + `"`)
	defer l.clean(context.WithoutCancel(ctx), cl)
	for _, part := range []struct {
		name string
		run  func(context.Context, *client.Client) error
	}{{"publish", l.publish}, {"fan-out", l.fanOut}, {"catch-up", l.catchUp}} {
		if l.only != "" && l.only != part.name && !(l.only == "catch-up" && part.name == "publish") {
			continue
		}
		if err := part.run(ctx, cl); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	if l.only == "catch-up" {
		l.figures = l.figures[1:] // omits the figure of the publish part, which only prepared the data to read
	}
	return l.print(c.OutOrStdout())
}

// clean deletes the streams of this run. It is called even after a signal.
func (l *load) clean(ctx context.Context, cl *client.Client) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, id := range l.made {
		if err := cl.DeleteStream(ctx, id); err != nil {
			l.stderr.say("weir: deleting stream %s failed: %v", id, err)
		}
	}
}

func (l *load) stream(ctx context.Context, cl *client.Client) (weir.StreamID, error) {
	s, err := cl.CreateStream(ctx, client.NewStream{Name: "weir bench", RetentionSeconds: 3600})
	if err == nil {
		l.made = append(l.made, s.ID)
	}
	return s.ID, err
}

// publisher publishes one-event batches for the time l.span and records the latency of each. The
// parameter pause is the time between two events. If it is 0, publisher publishes as fast as
// possible.
func (l *load) publisher(ctx context.Context, cl *client.Client, id weir.StreamID, m *meter, event func() json.RawMessage, pause time.Duration) error {
	var mu sync.Mutex
	var began []time.Time // start times of the events in flight, in order
	p, err := cl.Publisher(ctx, id, client.PublisherOptions{BatchEvents: 1, InFlight: l.inFlight,
		OnAck: func(weir.Ack) {
			mu.Lock()
			defer mu.Unlock()
			m.note(time.Since(began[0]))
			began = began[1:]
		},
		OnRetry: func(error, time.Duration) { m.retries.Add(1) },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.span) // begins here, because opening a publisher may take long
	defer cancel()
	for next := time.Now(); ctx.Err() == nil; {
		mu.Lock()
		began = append(began, time.Now())
		mu.Unlock()
		if err = p.AddEvent(ctx, event()); err != nil {
			break
		}
		if next = next.Add(pause); pause > 0 {
			sleep(ctx, time.Until(next))
		}
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if closed := p.Close(closing); err == nil || ctx.Err() != nil {
		err = closed
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// meter collects the measurements of a part. Many goroutines share it.
type meter struct {
	start   time.Time
	events  atomic.Int64
	retries atomic.Int64

	mu   sync.Mutex
	took []time.Duration
}

func (m *meter) note(d time.Duration) {
	m.events.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, d)
}

// figure computes the result from the measurements.
func (m *meter) figure(part string, size int64) figure {
	span := time.Since(m.start).Seconds()
	n := m.events.Load()
	f := figure{Part: part, Events: n, Seconds: span, Rate: float64(n) / span, MBps: float64(n*size) / 1e6 / span, Failures: m.retries.Load()}
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Sort(m.took); len(m.took) > 0 {
		at := func(share int) float64 { return float64(m.took[(len(m.took)-1)*share/100].Microseconds()) / 1e3 }
		f.P50, f.P99, f.Slowest = at(50), at(99), at(100)
	}
	return f
}

// live shows the progress of a part while it is running.
func (l *load) live(part string, m *meter) (stop func()) {
	return l.stderr.refresh(func() {
		span := time.Since(m.start)
		n := m.events.Load()
		l.stderr.show("%s  %s events  %s/s  %.1f MB/s  %v", l.stderr.paint(bold, part), count(n), count(int64(float64(n)/span.Seconds())),
			float64(n*l.bytes)/1e6/span.Seconds(), span.Round(time.Second))
	})
}

func (l *load) print(w io.Writer) error {
	if l.r.json {
		return json.NewEncoder(w).Encode(struct {
			URL     string   `json:"url"`
			Size    int64    `json:"event_bytes"`
			Figures []figure `json:"figures"`
		}{l.r.url, l.bytes, l.figures})
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "part\tevents\tseconds\tevents/s\tMB/s\tp50 ms\tp99 ms\tslowest ms\tretries\t")
	for _, f := range l.figures {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.0f\t%.1f\t%.2f\t%.2f\t%.2f\t%d\t\n", f.Part, f.Events, f.Seconds, f.Rate, f.MBps, f.P50, f.P99, f.Slowest, f.Failures)
	}
	return t.Flush()
}
