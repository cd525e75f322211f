package client_test

import (
	"errors"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir"
	"weir/client"
	"weir/internal/service/servicetest"
)

// unlucky refuses publishes under the given sequences with 503 until open is closed, as if only
// those did not get through.
func unlucky(open chan struct{}, seqs ...string) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-open:
			default:
				if r.Method == "POST" && slices.Contains(seqs, path.Base(r.URL.Path)) {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
			}
			h.ServeHTTP(w, r)
		})
	}
}

// afterGap publishes through a service that closes the gap of 2 and 3 before they arrive.
func afterGap(t *testing.T, o client.PublisherOptions) (c *client.Client, id weir.StreamID, p *client.Publisher) {
	open := make(chan struct{})
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--gap-grace", "20ms"}, Wrap: unlucky(open, "2", "3")})
	c = newClient(t, client.Options{URL: s.HTTP, Key: s.Key})
	id = newStream(t, c, client.NewStream{})
	o.BatchEvents, o.InFlight = 1, 5
	p = publisher(t, c, id, o)
	go func() {
		for b, err := range c.Subscriber(id, client.SubscriberOptions{From: client.Oldest}).Batches(t.Context()) {
			if err != nil || b.Seq > 3 { // the service gave up 2 and 3
				break
			}
		}
		close(open)
	}()
	addNumbers(t, p, 1, 5)
	return c, id, p
}

// A publisher whose gap was closed by the service knows that the batches are not stored. It stores
// them above the others, and goes on.
func TestPublisherRenumbers(t *testing.T) {
	var acks atomic.Int32
	c, id, p := afterGap(t, client.PublisherOptions{OnAck: func(weir.Ack) { acks.Add(1) }})
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := acks.Load(); n != 5 {
		t.Errorf("Flush returned after %d acknowledgements, want 5", n)
	}
	addNumbers(t, p, 6, 9)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at, ok := p.Acknowledged(); !ok || at != 11 {
		t.Errorf("acknowledged up to %d, %v; want 11: nine batches and two closed sequences", at, ok)
	}
	events := everything(t, c, id)
	two, three := slices.Index(events, "2"), slices.Index(events, "3")
	if two < 0 || three < two {
		t.Errorf("got %s; want 2 before 3", events)
	}
	slices.Sort(events)
	numbers(t, events, 9)
}

// A program that chose the sequences expects its batches there, so the publisher fails, and says that
// it came too late. It does not blame another writer.
func TestPublisherTooLate(t *testing.T) {
	start := weir.Seq(1)
	_, _, p := afterGap(t, client.PublisherOptions{StartAt: &start})
	err := p.Close(t.Context())
	failed, ok := errors.AsType[*client.PublishError](err)
	if !ok || !errors.Is(err, client.ErrTooLate) || errors.Is(err, client.ErrConflict) || failed.Seq != 2 && failed.Seq != 3 {
		t.Errorf("got %v, want ErrTooLate", err)
	}
}

// A gap that was closed although the publisher sent nothing above it was closed by another writer.
func TestPublisherBelowAnotherWriter(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--gap-grace", "20ms"}})
	c := newClient(t, client.Options{URL: s.HTTP, Key: s.Key})
	id := newStream(t, c, client.NewStream{})
	p := publisher(t, c, id, client.PublisherOptions{})
	publishNumbers(t, c, id, 3, 3)
	take(t, c.Subscriber(id, client.SubscriberOptions{From: client.Oldest}), 1) // 1 and 2 are closed
	addNumbers(t, p, 1, 1)
	if err := p.Close(t.Context()); !errors.Is(err, client.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
}

// A full disk delays a publisher, and that is all: the gaps of the batches in flight stay open (D4).
// With this short grace they may close before the first retry that finds space again, so the order is
// not checked.
func TestPublisherOnAFullDisk(t *testing.T) {
	const grace = 20 * time.Millisecond
	disk := servicetest.NewDisk()
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--gap-grace", grace.String()}, Engine: disk})
	c := newClient(t, client.Options{URL: s.HTTP, Key: s.Key})
	id := newStream(t, c, client.NewStream{})
	var first atomic.Int64
	var free atomic.Bool
	retry := func(error, time.Duration) {
		// Ten graces after the first refusal there is space again.
		first.CompareAndSwap(0, time.Now().UnixNano())
		if time.Since(time.Unix(0, first.Load())) > 10*grace && free.CompareAndSwap(false, true) {
			disk.SetFull(nil)
		}
	}
	p := publisher(t, c, id, client.PublisherOptions{BatchEvents: 1, GiveUp: time.Minute, OnRetry: retry})
	disk.SetFull(func(payload []byte) bool { // some batches no longer fit, and others just did
		n, err := strconv.Atoi(strings.Trim(string(payload), "[]"))
		return err == nil && n%3 == 2
	})
	addNumbers(t, p, 1, 9)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	events := everything(t, c, id)
	slices.Sort(events)
	numbers(t, events, 9)
}
