package client_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"weir"
	"weir/client"
)

// A subscriber takes its position from the first frame of a connection (D16), so that it misses
// nothing if the connection is lost before the first batch.
func TestSubscriberPosition(t *testing.T) {
	const batch = "id: 8\nevent: batch\ndata: {\"seq\":8,\"ts\":\"2026-11-15T00:00:00.000Z\",\"events\":[]}\n\n"
	for _, x := range []struct {
		name   string
		from   client.From
		first  string // response on the first connection, which then breaks
		then   string // the query and the Last-Event-ID of the second request
		at     weir.Seq
		placed bool // whether Position knows the position
	}{
		{"head", client.Head, "retry: 1\nid: 7\n\n", "last=7", 7, true},
		{"head, heartbeats", client.Head, "retry: 1\nid: 7\n\n:\n\n:\n\n", "last=7", 7, true},
		{"head, the first batch is cut off", client.Head, "retry: 1\nid: 7\n\n" + batch[:len(batch)-1], "last=7", 7, true},
		{"head, one batch arrives", client.Head, "retry: 1\nid: 7\n\n" + batch, "last=8", 8, true},
		{"head, the first batch is not above the position", client.Head, "retry: 1\nid: 8\n\n" + batch, "last=8", 8, true},
		{"head where nothing was ever stored", client.Head, "retry: 1\n\n", "?cursor=0 last=", 0, false},
		{"head, cut inside the first frame", client.Head, "retry: 1\nid: 7\n", "?cursor=head last=", 0, false},
		{"oldest", client.Oldest, "retry: 1\nid: 41\n\n", "last=41", 41, true},
		{"oldest where nothing was ever stored", client.Oldest, "retry: 1\n\n", "?cursor=0 last=", 0, false},
		{"after", client.After(3), "retry: 1\nid: 3\n\n", "last=3", 3, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				f := &fakes{answer: func(n int, r *http.Request) (*http.Response, error) {
					query := ""
					if r.URL.RawQuery != "" {
						query = "?" + r.URL.RawQuery + " "
					}
					asked = append(asked, query+"last="+r.Header.Get("Last-Event-ID"))
					if n == 1 {
						return stream(r, x.first, false)
					}
					return stream(r, "event: end\ndata: {}\n\n", false)
				}}
				s := newClient(t, client.Options{URL: "http://weir.example", Transport: f}).Subscriber("x", client.SubscriberOptions{From: x.from})
				for _, err := range s.Batches(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
				}
				if len(asked) != 2 || asked[1] != x.then {
					t.Errorf("requests %q, want a second one with %q", asked, x.then)
				}
				if at, ok := s.Position(); at.Seq != x.at || ok != x.placed {
					t.Errorf("the position is %v, %t; want %d, %t", at, ok, x.at, x.placed)
				}
			})
		})
	}
}

// A subscriber at the head of a stream in which nothing was ever stored gets everything that is
// stored later, including sequence 0 (D15).
func TestSubscriberAtHeadOfNothing(t *testing.T) {
	h := startService(t, nil)
	c := h.client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	connected := make(chan struct{}, 1)
	s := h.client(client.Options{Transport: notify{http.DefaultTransport, connected}}).Subscriber(id, client.SubscriberOptions{})
	got := make(chan []weir.Seq)
	go func() { got <- take(t, s, 3) }()
	<-connected
	publishNumbers(t, c, id, 0, 2)
	if all := <-got; !slices.Equal(all, []weir.Seq{0, 1, 2}) {
		t.Errorf("got sequences %d, want 0 to 2", all)
	}
}

// notify is a transport that reports when the response header of a subscription has arrived.
type notify struct {
	http.RoundTripper
	connected chan struct{}
}

func (n notify) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(r)
	if err == nil && r.Header.Get("Accept") == "text/event-stream" {
		n.connected <- struct{}{}
	}
	return resp, err
}

// A subscriber that resumes at the end of an empty stream reads what was stored since, up to Until.
// It yields nothing beyond Until, and its position stays below the batches that it did not yield.
func TestSubscriberUntil(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	until := func(id weir.StreamID, from client.From, seq weir.Seq) (seqs []weir.Seq, at client.Position) {
		s := c.Subscriber(id, client.SubscriberOptions{From: from, Until: &seq})
		for b, err := range s.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, b.Seq)
		}
		at, _ = s.Position()
		return seqs, at
	}
	seqs, empty := until(id, client.Oldest, 0)
	if len(seqs) != 0 || !empty.Empty {
		t.Fatalf("an empty stream: got %d, and the position %v", seqs, empty)
	}
	publishNumbers(t, c, id, 1, 3)
	if seqs, at := until(id, client.Resume(empty), 3); !slices.Equal(seqs, []weir.Seq{1, 2, 3}) || at.Seq != 3 {
		t.Errorf("after three batches: got %d, and the position %v", seqs, at)
	}
	if seqs, _ := until(id, client.Resume(empty), 0); len(seqs) != 0 {
		t.Errorf("until 0: got %d", seqs)
	}
	if _, err := c.PublishAt(t.Context(), id, 6, client.Events(6)); err != nil {
		t.Fatal(err)
	}
	zero := newStream(t, c, client.NewStream{})
	if _, err := c.PublishAt(t.Context(), zero, 0, client.Events(0)); err != nil {
		t.Fatal(err)
	}
	if seqs, at := until(zero, client.Oldest, 0); !slices.Equal(seqs, []weir.Seq{0}) || at.Empty {
		t.Errorf("a stream with batch 0 only: got %d, and the position %v", seqs, at)
	}
	if seqs, at := until(id, client.After(2), 5); !slices.Equal(seqs, []weir.Seq{3}) || at.Seq != 3 { // once the gap is closed
		t.Errorf("until a number without a batch: got %d, and the position %v", seqs, at)
	}
}
