package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/client"
	"weir/internal/service/servicetest"
)

// leaveGap publishes batch 50 to a stream whose last batch is batch 2, and waits until the service has
// closed the gap between them.
func leaveGap(t *testing.T, c *client.Client, id weir.StreamID) {
	t.Helper()
	if _, err := c.PublishAt(t.Context(), id, 50, client.Events(0)); err != nil {
		t.Fatal(err)
	}
	page, err := c.Page(t.Context(), id, client.PageOptions{From: 3, Wait: 30 * time.Second}) // it has batch 50 when the gap is closed
	if err != nil || len(page.Batches) != 1 {
		t.Fatal(page, err)
	}
}

// Another writer leaves a gap above the last batch of a publisher, and the service closes the gap.
// The publisher gives its next batches numbers above the gap, without storing any of them twice. If
// it does not know whether one of them is stored, it fails instead.
func TestPublisherRenumbers(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost=%t", lost), func(t *testing.T) {
			var once sync.Once
			svc := &testService{servicetest.Start(t, servicetest.Options{Args: []string{"--gap-grace", "1ms"}, Wrap: func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if lost && r.Method == "POST" && path.Base(r.URL.Path) == "3" {
						once.Do(func() { panic(http.ErrAbortHandler) }) // the client gets no response
					}
					h.ServeHTTP(w, r)
				})
			}}), t}
			c := svc.client(client.Options{})
			id := newStream(t, c, client.NewStream{})
			var acked []weir.Seq
			p := publisher(t, c, id, client.PublisherOptions{BatchEvents: 1, OnAck: func(a weir.Ack) { acked = append(acked, a.Seq) }})
			addNumbers(t, p, 1, 2)
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			leaveGap(t, c, id)
			for n := 3; n <= 6; n++ {
				if err := p.Add(t.Context(), n); err != nil && !lost {
					t.Fatal(err)
				}
			}
			err := p.Close(t.Context())
			want := []weir.Seq{1, 2, 51, 52, 53, 54}
			if lost {
				want = want[:2]
				if !errors.Is(err, client.ErrGapClosed) {
					t.Errorf("got %v, want ErrGapClosed", err)
				}
			} else if err != nil {
				t.Error(err)
			}
			if !slices.Equal(acked, want) {
				t.Errorf("acknowledged: %v, want %v", acked, want)
			}
			var seqs []weir.Seq
			for b, err := range c.Batches(t.Context(), id, client.PageOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				if seqs = append(seqs, b.Seq); b.Seq > 50 && string(b.Events[0]) != fmt.Sprint(b.Seq-48) {
					t.Errorf("batch %d has the event %s", b.Seq, b.Events[0])
				}
			}
			if want = slices.Insert(want, 2, 50); !slices.Equal(seqs, want) {
				t.Errorf("stored: %v, want %v", seqs, want)
			}
		})
	}
}

// A batch whose number the service chooses after a closed gap is stored, but the publisher never
// learns of that. Its idempotency key is known, so that a program can publish it again safely.
func TestUnacknowledgedKey(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	svc := &testService{servicetest.Start(t, servicetest.Options{Args: []string{"--gap-grace", "1ms"}, Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if path.Base(r.URL.Path) == "publish" && ctx.Err() == nil {
				h.ServeHTTP(httptest.NewRecorder(), r)
				cancel()
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		})
	}}), t}
	c := svc.client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	p := publisher(t, c, id, client.PublisherOptions{BatchEvents: 1})
	addNumbers(t, p, 1, 2)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	leaveGap(t, c, id)
	addNumbers(t, p, 3, 3)
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	left := p.Unacknowledged()
	if len(left) != 1 || left[0].Key == "" {
		t.Fatalf("unacknowledged: %+v, want one batch with a key", left)
	}
	ack, err := c.PublishOnce(t.Context(), id, left[0].Key, client.Events(3))
	if err != nil || !ack.Duplicate || ack.Seq != 51 {
		t.Errorf("publish it again: %+v, %v; want a duplicate of batch 51", ack, err)
	}
}
