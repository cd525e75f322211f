package trials

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/contract"
)

var seed = flag.Uint64("trials.seed", 0, "seed of the random choices; 0 for a different one in each run")

// Publishers keep 200 batches in flight in random order, send some twice, time out and retry.
// Subscribers disconnect and reconnect at any moment. Every subscriber sees exactly the stored
// batches, once and in order (D3, D4, D25).
func TestProperty(t *testing.T) {
	t.Parallel()
	for _, by := range []contract.Transport{contract.Transports[0], contract.Transports[1], contract.Transports[4]} {
		t.Run(by.Name, func(t *testing.T) {
			r, _ := seeded(t)
			target := serve(t, t.TempDir(), "--rate-live", "0").over(t, by)
			c := &caller{target.BaseURL, target.Client()}
			t.Cleanup(c.client.CloseIdleConnections)
			for _, keyed := range []bool{false, true} {
				h := newHistory(t, c, keyed)
				h.run(r)
			}
		})
	}
}

const (
	inFlight    = 200
	batches     = 1000
	subscribers = 5
)

// history is one stream and what its clients know about it.
type history struct {
	t     testing.TB
	c     *caller
	id    string
	keyed bool // the server chooses sequences, and publishes have idempotency keys
	mu    sync.Mutex
	sent  map[int64]*publishes // by sequence, or by the number in the idempotency key
	over  atomic.Int64         // last sequence of the stream; 0 while publishers run
}

// publishes are the attempts to store one batch.
type publishes struct {
	bodies  []string // one per attempt; any of them may be stored
	winner  string   // the body whose acknowledgement said that it is not a duplicate
	seq     int64    // acknowledged sequence; -1 before the acknowledgement
	refused bool     // an attempt was refused
}

func newHistory(t testing.TB, c *caller, keyed bool) *history {
	id := contract.NewID()
	out, status, b := c.ask(context.Background(), "POST", "/v1/streams", `{"name":"property","id":"`+id+`"}`, nil)
	if out != done {
		t.Fatalf("create: %d %s", status, b)
	}
	return &history{t: t, c: c, id: id, keyed: keyed, sent: map[int64]*publishes{}}
}

// run runs publishers and subscribers, and compares what they saw with the stored batches.
func (h *history) run(r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var readers, writers sync.WaitGroup
	seen := make([][]sighting, subscribers)
	for i := range subscribers {
		own := rand.New(rand.NewPCG(r.Uint64(), 2))
		readers.Go(func() { seen[i] = h.subscribe(ctx, own) })
	}
	work := make(chan int64, inFlight)
	for range inFlight {
		own := rand.New(rand.NewPCG(r.Uint64(), 3))
		writers.Go(func() {
			for n := range work {
				h.settle(ctx, own, n)
			}
		})
	}
	for from := int64(1); from <= batches; from += inFlight {
		for _, i := range r.Perm(inFlight) {
			if n := from + int64(i); h.keyed || n%97 != 0 { // some sequences are never used
				work <- n
			}
		}
	}
	close(work)
	writers.Wait()
	_, _, last := h.c.publish(ctx, contract.NextPath(h.id), "", `["over"]`)
	h.over.Store(last.Seq)
	readers.Wait()
	log, _ := h.c.readAllOf(h.t, h.id)
	h.check(log)
	for i, s := range seen {
		if !slices.Equal(s, log) {
			h.t.Errorf("subscriber %d saw %d batches, want %d: %s", i, len(s), len(log), difference(s, log))
		}
	}
}

// settle publishes a batch until the outcome is known. Sometimes it sends the batch twice at once,
// and sometimes it gives up before the response arrives.
func (h *history) settle(ctx context.Context, r *rand.Rand, n int64) {
	attempts := 1
	if r.IntN(10) == 0 {
		attempts = 2
	}
	var all sync.WaitGroup
	for range attempts {
		own := rand.New(rand.NewPCG(r.Uint64(), 4))
		all.Go(func() {
			for try := 0; !h.attempt(ctx, own, n, try == 0 && own.IntN(8) == 0) && ctx.Err() == nil; try++ {
			}
		})
	}
	all.Wait()
}

// attempt publishes once and reports whether the outcome is known.
func (h *history) attempt(ctx context.Context, r *rand.Rand, n int64, impatient bool) bool {
	if impatient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Microsecond)
		defer cancel()
	}
	body := text(r, fmt.Sprint(n))
	h.mu.Lock()
	p := h.sent[n]
	if p == nil {
		p = &publishes{seq: -1}
		h.sent[n] = p
	}
	p.bodies = append(p.bodies, body)
	h.mu.Unlock()
	path, key := contract.SeqPath(h.id, n), ""
	if h.keyed {
		path, key = contract.NextPath(h.id), fmt.Sprintf("key-%d", n)
	}
	out, status, k := h.c.publish(ctx, path, key, body)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case out == unknown:
		return false
	case out == refused:
		if h.keyed || status != 409 || p.seq >= 0 {
			h.t.Errorf("batch %d was refused with %d", n, status)
		}
		p.refused = true
		return true
	case p.seq >= 0 && p.seq != k.Seq || !h.keyed && k.Seq != n:
		h.t.Errorf("batch %d was acknowledged with sequences %d and %d", n, p.seq, k.Seq)
	case p.winner != "" && !k.Duplicate:
		h.t.Errorf("batch %d was stored twice", n)
	}
	p.seq = k.Seq
	if !k.Duplicate {
		p.winner = body
	}
	return true
}

// subscribe reads the whole stream, over a random number of connections.
func (h *history) subscribe(ctx context.Context, r *rand.Rand) []sighting {
	var seen []sighting
	last := int64(-1)
	for ctx.Err() == nil && (h.over.Load() == 0 || last < h.over.Load()) {
		left := 1 + r.IntN(300)
		own, cancel := context.WithTimeout(ctx, time.Duration(1+r.IntN(500))*time.Millisecond)
		err := h.c.follow(own, h.id, last, func(s sighting) bool {
			seen = append(seen, s)
			last = s.seq
			left--
			return left > 0
		})
		cancel()
		if err != nil {
			h.t.Errorf("subscriber: %v", err)
			return seen
		}
	}
	return seen
}

// check compares the stored batches with the responses.
func (h *history) check(log []sighting) {
	stored := map[int64]string{}
	for _, s := range log[:len(log)-1] { // the last batch only tells the subscribers that the stream ends
		stored[s.seq] = s.events
	}
	acknowledged := 0
	for n, p := range h.sent {
		if p.seq < 0 {
			if _, there := stored[n]; there && !h.keyed {
				h.t.Errorf("batch %d was refused, but is stored", n)
			}
			continue
		}
		acknowledged++
		if got, there := stored[p.seq]; !there || p.winner != "" && got != p.winner || !slices.Contains(p.bodies, got) {
			h.t.Errorf("batch %d was acknowledged with sequence %d, which holds %q", n, p.seq, contract.Shorten(got))
		}
	}
	if acknowledged != len(stored) {
		h.t.Errorf("%d batches were acknowledged, but %d are stored", acknowledged, len(stored))
	}
}

// difference describes the first difference between two logs.
func difference(got, want []sighting) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("at index %d got sequence %d, want %d; if these are equal, the bytes differ", i, got[i].seq, want[i].seq)
		}
	}
	return fmt.Sprintf("the first %d batches are equal", min(len(got), len(want)))
}
