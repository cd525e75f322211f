package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir"
	"weir/client"
	"weir/internal/access"
	"weir/internal/faultnet"
)

// publisher opens a publisher. If the test does not close the publisher, the cleanup closes it
// without waiting.
func publisher(t testing.TB, c *client.Client, id weir.StreamID, o client.PublisherOptions) *client.Publisher {
	t.Helper()
	p, err := c.Publisher(t.Context(), id, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.Close(ctx)
	})
	return p
}

// addNumbers adds the numbers from a to b as events.
func addNumbers(t testing.TB, p *client.Publisher, a, b int) {
	t.Helper()
	for n := a; n <= b; n++ {
		if err := p.Add(t.Context(), n); err != nil {
			t.Fatalf("add %d: %v", n, err)
		}
	}
}

func TestPublisher(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	var acks []weir.Ack
	p := publisher(t, c, id, client.PublisherOptions{BatchEvents: 10, Linger: -1, OnAck: func(a weir.Ack) { acks = append(acks, a) }})
	if seq, ok := p.Acknowledged(); ok {
		t.Errorf("sequence %d was acknowledged before anything was sent", seq)
	}
	addNumbers(t, p, 1, 995)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(acks) != 100 {
		t.Fatalf("%d batches are acknowledged, want 100", len(acks))
	}
	for i, a := range acks {
		if want := uint32(min(10, 995-10*i)); a.Seq != weir.Seq(i+1) || a.Accepted != want || a.Duplicate {
			t.Errorf("acknowledgement %d is %+v", i+1, a)
		}
	}
	if seq, ok := p.Acknowledged(); !ok || seq != 100 {
		t.Errorf("acknowledged up to %d, %t; want 100", seq, ok)
	}
	addNumbers(t, p, 996, 1000)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := p.Unacknowledged(); len(left) != 0 {
		t.Errorf("unacknowledged after Close: %+v", left)
	}
	if err := p.Add(t.Context(), 1); err != client.ErrClosed {
		t.Errorf("Add after Close: %v, want ErrClosed", err)
	}
	if err := p.Close(t.Context()); err != client.ErrClosed {
		t.Errorf("second Close: %v, want ErrClosed", err)
	}

	// A second publisher, such as the next run of a program, continues at the end of the stream.
	p = publisher(t, c, id, client.PublisherOptions{})
	addNumbers(t, p, 1001, 1100)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, readEverything(t, c, id), 1100)
}

// A batch that is not full is sent after the time in Linger.
func TestPublisherLinger(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	acks := make(chan weir.Ack, 1)
	p := publisher(t, c, newStream(t, c, client.NewStream{}), client.PublisherOptions{OnAck: func(a weir.Ack) { acks <- a }})
	for n := 1; n <= 3; n++ {
		addNumbers(t, p, n, n)
		if a := <-acks; a.Seq != weir.Seq(n) || a.Accepted != 1 {
			t.Errorf("got %+v, want one event in batch %d", a, n)
		}
	}
}

func TestPublisherBatchBytes(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	p := publisher(t, c, id, client.PublisherOptions{BatchBytes: 40, Linger: -1})
	for _, e := range []string{"aaaaaaaaaa", "bbbbbbbbbb", strings.Repeat("c", 100), "d"} { // the first two fit in one batch; the third is larger than a batch; the fourth is alone
		if err := p.Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for seq, want := range []int{2, 1, 1} {
		if b, err := c.Batch(t.Context(), id, weir.Seq(seq+1)); err != nil || len(b.Events) != want {
			t.Errorf("batch %d has %d events, want %d: %v", seq+1, len(b.Events), want, err)
		}
	}
}

func TestPublisherRaw(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{Mode: weir.Raw})
	p := publisher(t, c, id, client.PublisherOptions{Buffer: 20})
	b := make([]byte, 0, 8)
	for n := 1; n <= 300; n++ {
		b = fmt.Append(b[:0], n) // reusing the memory is allowed, because AddBytes copies it
		if err := p.AddBytes(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Add(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "use AddBytes") {
		t.Errorf("Add to a raw stream: %v", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, readEverything(t, c, id), 300)
}

// An invalid event is refused, and the events before and after it are stored.
func TestPublisherBadEvents(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	p := publisher(t, c, id, client.PublisherOptions{})
	addNumbers(t, p, 1, 1)
	for _, bad := range []any{make(chan int), json.RawMessage(`{"a":1,"a":2}`), json.RawMessage(`{`), strings.Repeat("x", weir.MaxBody)} {
		err := p.Add(t.Context(), bad)
		if _, failed := errors.AsType[*client.PublishError](err); err == nil || failed {
			t.Errorf("Add(%.20v) = %v, want an error that is not a *PublishError", bad, err)
		}
	}
	if err := p.AddBytes(t.Context(), nil); err == nil {
		t.Error("AddBytes to a json stream succeeded")
	}
	addNumbers(t, p, 2, 2)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, readEverything(t, c, id), 2)
}

// gate blocks publishes until the channel release is closed, and counts the blocked publishes.
func gate(release chan struct{}, waiting *atomic.Int32) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" && r.URL.Path != "/v1/streams" {
				waiting.Add(1)
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
			h.ServeHTTP(w, r)
		})
	}
}

// Add waits if the service does not keep up. In this test that happens when 3 batches of 10 events
// are in flight and 10 more events are buffered.
func TestPublisherBackPressure(t *testing.T) {
	open, waiting := make(chan struct{}), new(atomic.Int32)
	c := startService(t, gate(open, waiting)).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	p := publisher(t, c, id, client.PublisherOptions{InFlight: 3, BatchEvents: 10, Linger: -1})
	addNumbers(t, p, 1, 40)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Add(ctx, 41); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Add with a full buffer: %v, want a timeout", err)
	}
	if n := waiting.Load(); n > 3 {
		t.Errorf("%d batches are in flight, want at most 3", n)
	}
	if err := p.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Flush: %v, want a timeout", err)
	}
	close(open)
	addNumbers(t, p, 41, 100)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, readEverything(t, c, id), 100)
}

// If Close times out, it leaves no goroutine behind, and Unacknowledged returns the batches that
// are not stored.
func TestPublisherCloseTimeout(t *testing.T) {
	open, waiting := make(chan struct{}), new(atomic.Int32)
	defer close(open)
	c := startService(t, gate(open, waiting)).client(client.Options{})
	p := publisher(t, c, newStream(t, c, client.NewStream{}), client.PublisherOptions{BatchEvents: 10, Linger: -1})
	addNumbers(t, p, 1, 25)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v, want a timeout", err)
	}
	var left []string
	for _, u := range p.Unacknowledged() {
		for _, e := range u.Events {
			left = append(left, string(e))
		}
	}
	checkNumbers(t, left, 25)
}

// If many goroutines add and flush at once, each event is stored exactly once.
func TestPublisherConcurrent(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	p := publisher(t, c, id, client.PublisherOptions{BatchEvents: 7, InFlight: 4})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := range 100 {
				if err := p.Add(t.Context(), g*100+n); err != nil {
					t.Error(err)
				}
				if n%30 == 0 {
					if err := p.Flush(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := readEverything(t, c, id)
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 800 || len(got) != 800 {
		t.Errorf("%d events, %d of them distinct; want 800 distinct events", len(got), n)
	}
}

// A publisher uses one connection of its own.
func TestPublisherConnection(t *testing.T) {
	svc := startService(t, nil)
	proxy := startProxy(t, faultnet.Options{Backend: svc.address()})
	c := svc.client(client.Options{URL: proxy.url})
	id := newStream(t, svc.client(client.Options{}), client.NewStream{})
	p := publisher(t, c, id, client.PublisherOptions{BatchEvents: 1, InFlight: 50})
	addNumbers(t, p, 1, 2000)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := proxy.Opened(); n != 2 { // one connection for the client, one for the publisher
		t.Errorf("%d connections, want 2", n)
	}
}

// Every event is stored once and in order, however connections fail.
func TestPublisherBrokenConnections(t *testing.T) {
	random := func(least, most int64) int64 { return least + rand.Int64N(most-least) }
	for name, fates := range map[string]func(n int) faultnet.Cut{
		"cut in requests":    func(int) faultnet.Cut { return faultnet.Cut{Up: random(500, 6_000)} },
		"cut in responses":   func(int) faultnet.Cut { return faultnet.Cut{Down: random(50, 5_000)} },
		"responses are lost": func(int) faultnet.Cut { return faultnet.Cut{Down: random(50, 5_000), Swallow: random(50, 120)} },
		"cut at once": func(n int) faultnet.Cut { // applies to two of three connections
			if n%3 == 0 {
				return faultnet.Cut{Up: random(1_000, 10_000)}
			}
			return faultnet.Cut{Down: 1}
		},
		"stalled": func(n int) faultnet.Cut { return map[int]faultnet.Cut{2: {Down: 2_000, Stall: true}}[n] },
		"everything, mixed": func(int) faultnet.Cut {
			return faultnet.Cut{Up: random(100, 20_000), Down: random(500, 8_000), Swallow: random(0, 100)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := startService(t, nil)
			direct := svc.client(client.Options{})
			id := newStream(t, direct, client.NewStream{})
			const n = 2000
			proxy := startProxy(t, faultnet.Options{Backend: svc.address(), Cut: fates})
			c := svc.client(client.Options{URL: proxy.url, Retry: time.Minute})
			p := publisher(t, c, id, client.PublisherOptions{BatchEvents: 5, InFlight: 20})
			addNumbers(t, p, 1, n)
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkNumbers(t, readEverything(t, direct, id), n)
			t.Logf("the publisher opened %d connections", proxy.Opened())
		})
	}
}

// A publisher detects that another writer publishes to the same stream, and reports the batch that
// it could not store.
func TestPublisherConflict(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	p := publisher(t, c, id, client.PublisherOptions{BatchEvents: 1})
	addNumbers(t, p, 1, 5)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), id, client.Events(6)); err != nil { // the same content, but published by another writer
		t.Fatal(err)
	}
	err := p.Add(t.Context(), 6)
	if err == nil {
		err = p.Flush(t.Context())
	}
	failed, ok := errors.AsType[*client.PublishError](err)
	if !errors.Is(err, client.ErrTaken) || !ok || failed.Seq != 6 || failed.Stream != id {
		t.Fatalf("got %v, want ErrTaken at sequence 6", err)
	}
	if again := p.Add(t.Context(), 7); again != err {
		t.Errorf("Add after the failure: %v, want the same error", again)
	}
	if again := p.Close(t.Context()); again != err {
		t.Errorf("Close after the failure: %v, want the same error", again)
	}
	left := p.Unacknowledged()
	if len(left) != 1 || left[0].Seq != 6 || !left[0].Sent || len(left[0].Events) != 1 || string(left[0].Events[0]) != "6" {
		t.Errorf("unacknowledged: %+v, want batch 6", left)
	}
}

// The first attempt of a batch is lost, and another writer uses its sequence before the retry. The
// publisher must not mistake the other writer's batch for its own.
func TestPublisherConflictOnRetry(t *testing.T) {
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprintf("same=%t", same), func(t *testing.T) {
			var once sync.Once
			var other func()
			svc := startService(t, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == "POST" && path.Base(r.URL.Path) == "1" && r.Header.Get("User-Agent") == "first" {
						lost := false
						once.Do(func() { lost = true; other() })
						if lost {
							panic(http.ErrAbortHandler)
						}
					}
					h.ServeHTTP(w, r)
				})
			})
			c := svc.client(client.Options{UserAgent: "first"})
			id := newStream(t, c, client.NewStream{})
			second := svc.client(client.Options{})
			other = func() {
				content := client.Events("something else")
				if same { // as if the first attempt had been stored
					content = client.Events("mine", json.RawMessage(`{ "a": 1 }`))
				}
				if _, err := second.PublishAt(context.Background(), id, 1, content); err != nil {
					t.Error(err)
				}
			}
			p := publisher(t, c, id, client.PublisherOptions{Linger: -1})
			for _, e := range []any{"mine", map[string]int{"a": 1}} {
				if err := p.Add(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Close(t.Context()); !errors.Is(err, client.ErrTaken) {
				t.Errorf("got %v, want ErrTaken", err)
			}
		})
	}
}

// A publisher with StartAt can publish batches again under the same sequences, if their content is
// the same.
func TestPublisherStartAt(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	run := func(start weir.Seq, from, to int) error {
		p := publisher(t, c, id, client.PublisherOptions{StartAt: &start, BatchEvents: 10, Linger: -1})
		for n := from; n <= to; n++ {
			if err := p.Add(t.Context(), n); err != nil {
				return err
			}
		}
		return p.Close(t.Context())
	}
	for _, x := range []struct {
		start    weir.Seq
		from, to int
	}{{1, 1, 50}, {1, 1, 50}, {3, 21, 100}, {0, 999, 999}} {
		if err := run(x.start, x.from, x.to); err != nil && x.start > 0 {
			t.Errorf("%+v: %v", x, err)
		} else if x.start == 0 && !errors.Is(err, client.ErrGapClosed) { // once a higher sequence is stored, 0 can no longer be published
			t.Errorf("%+v: %v, want ErrGapClosed", x, err)
		}
	}
	if err := run(2, 1, 10); !errors.Is(err, client.ErrTaken) {
		t.Errorf("publish different events under a stored sequence: %v, want ErrTaken", err)
	}
	if err := run(10+weir.MaxAhead+1, 1, 10); client.CodeOf(err) != weir.SequenceNotNext {
		t.Errorf("start too far ahead: %v, want sequence_not_next", err)
	}
	checkNumbers(t, readEverything(t, c, id), 100)
}

// A publisher works with a key that may publish but not read.
func TestPublisherWithoutRead(t *testing.T) {
	d, svc := newFlaky(t)
	c := svc.client(client.Options{})
	writer := svc.client(client.Options{Key: client.Key(svc.NewKey(access.Publish))})
	id, raw := newStream(t, c, client.NewStream{}), newStream(t, c, client.NewStream{Mode: weir.Raw})
	for _, from := range []int{1, 101} {
		p := publisher(t, writer, id, client.PublisherOptions{BatchEvents: 3})
		d.lose.Store(1)
		addNumbers(t, p, from, from+99)
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if seq, ok := p.Acknowledged(); !ok || seq < 34 {
			t.Errorf("acknowledged up to %d", seq)
		}
	}
	checkNumbers(t, readEverything(t, c, id), 200)
	p := publisher(t, writer, raw, client.PublisherOptions{})
	if err := p.AddBytes(t.Context(), []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, readEverything(t, c, raw), 1)
}

func TestPublisherRefused(t *testing.T) {
	svc := startService(t, nil)
	c := svc.client(client.Options{})
	if _, err := c.Publisher(t.Context(), weir.NewStreamID(), client.PublisherOptions{}); client.CodeOf(err) != weir.StreamNotFound {
		t.Errorf("publish to an unknown stream: %v, want stream_not_found", err)
	}
	id := newStream(t, c, client.NewStream{})
	p := publisher(t, svc.client(client.Options{Key: client.Key(svc.NewKey(access.Read))}), id, client.PublisherOptions{})
	addNumbers(t, p, 1, 1)
	if err := p.Flush(t.Context()); client.CodeOf(err) != weir.ProjectForbidden {
		t.Errorf("open without the permission to publish: %v, want project_forbidden", err)
	}
	p = publisher(t, c, id, client.PublisherOptions{})
	addNumbers(t, p, 1, 1)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteStream(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	addNumbers(t, p, 2, 2)
	if err := p.Close(t.Context()); client.CodeOf(err) != weir.StreamNotFound {
		t.Errorf("publish to a deleted stream: %v, want stream_not_found", err)
	}
}
