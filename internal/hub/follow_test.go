package hub

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/engine/jetstream"
	"weir/internal/engine/jetstream/embedded"
)

// node opens another hub on the store of server s. The hub behaves like a node of a cluster.
func node(t *testing.T, s *embedded.Server, o Options) *Hub {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	e, err := jetstream.Open(ctx, nc, jetstream.Options{Shards: 2, Patience: time.Minute}) // a long time, because the machine may be busy
	if err != nil {
		t.Fatal(err)
	}
	h := open(t, e, o)
	t.Cleanup(func() {
		if err := errors.Join(h.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// shared starts a server. All hubs that are opened on it share one store.
func shared(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Three nodes publish to one stream concurrently: with chosen sequences, with idempotency keys, and
// with neither. Every acknowledgement holds on all nodes, and a subscriber on any node gets every
// batch once and in order.
func TestNodesShareAStream(t *testing.T) {
	s := shared(t)
	first := node(t, s, Options{GapGrace: 100 * time.Millisecond})
	id := made(t, first, nil).ID
	hubs := []*Hub{first, node(t, s, Options{GapGrace: 100 * time.Millisecond}), node(t, s, Options{GapGrace: 100 * time.Millisecond})}

	var mu sync.Mutex
	acked := map[weir.Seq]string{}
	keys := map[string]weir.Seq{}
	var all sync.WaitGroup
	for w := range 12 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			st, err := hubs[w%3].Stream(id)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 25 {
				p := Publish{Batch: weir.Batch{Events: 1, Payload: fmt.Appendf(nil, "%d of %d", i, w)}}
				switch rng.IntN(3) {
				case 0:
					p.Key = fmt.Sprint("key ", rng.IntN(20)) // other publishers use the same keys
				case 1:
					c, err := st.Cursor(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					p.Chosen, p.Seq = true, c.Cursor+weir.Seq(rng.IntN(4))
				}
				ack, err := st.Publish(ctx, &p)
				var known *weir.Error
				if errors.As(err, &known) && known.Code == weir.InvalidSequence {
					continue // the sequence is in a gap that was closed
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if before, twice := acked[ack.Seq]; !ack.Duplicate && twice {
					t.Errorf("sequence %d was stored twice: %q and %q", ack.Seq, before, p.Batch.Payload)
				}
				if !ack.Duplicate {
					acked[ack.Seq] = fmt.Sprintf("%d of %d", i, w)
				}
				if seq, seen := keys[p.Key]; p.Key != "" && seen && seq != ack.Seq {
					t.Errorf("the batch with %s was stored as %d and as %d", p.Key, seq, ack.Seq)
				}
				keys[p.Key] = ack.Seq
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var newest weir.Seq
	for seq := range acked {
		newest = max(newest, seq)
	}
	for i, h := range hubs {
		t.Run(fmt.Sprint("node ", i), func(t *testing.T) { delivers(t, h, id, acked, newest) })
	}
}

// delivers checks that a node delivers exactly the acknowledged batches, and that its cursor is the
// highest of them, which the parameter newest gives.
func delivers(t *testing.T, h *Hub, id weir.StreamID, acked map[weir.Seq]string, newest weir.Seq) {
	st, err := h.Stream(id)
	if err != nil {
		t.Fatal(err)
	}
	c := collector{from: Oldest, got: map[weir.Seq]string{}}
	if err := c.follow(st, newest, func() int { return 1000 }); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(c.got, acked) {
		t.Errorf("delivered %d batches %v, want the %d acknowledged ones %v", len(c.got), c.got, len(acked), acked)
	}
	at, err := st.Cursor(ctx)
	if err != nil || at.Cursor != newest {
		t.Errorf("the cursor is %d, %v; want %d", at.Cursor, err, newest)
	}
}
