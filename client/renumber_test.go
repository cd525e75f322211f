package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/client"
	"weir/internal/service/servicetest"
)

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
			if _, err := c.PublishAt(t.Context(), id, 50, client.Events(0)); err != nil {
				t.Fatal(err)
			}
			if page, err := c.Page(t.Context(), id, client.PageOptions{From: 3, Wait: 30 * time.Second}); err != nil || len(page.Batches) != 1 { // the page has batch 50 when the gap is closed
				t.Fatal(page, err)
			}
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
