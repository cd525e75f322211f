package hub

import (
	"sync"
	"sync/atomic"

	"weir"
	"weir/internal/meter"
)

// counters are what the hub counts of its own work. Batches are counted where groups of them become durable, and
// deliveries in a shard of the subscription's own.
type counters struct {
	published      atomic.Uint64
	publishedBytes atomic.Uint64
	gaps           atomic.Uint64
	evicted        atomic.Uint64
	evictedBytes   atomic.Uint64
	joined         atomic.Uint32
	delivered      [meter.Shards]delivered
}

type delivered struct {
	batches atomic.Uint64
	bytes   atomic.Uint64
	delays  meter.Histogram
	_       meter.Pad
}

// handed is a run of frames that was given to a subscriber to be sent.
type handed struct {
	batches int
	bytes   int
	at      int64 // when the oldest of them was admitted, by the meter; 0 for what was read from the log
}

// settle counts the run that was sent before: who asks for the next one has sent it. All frames of a run count with the
// delay of its oldest. By now everything below next is sent.
func (s *Subscription) settle() {
	s.stand.Store(uint64(s.next))
	run := &s.handed
	if run.batches == 0 {
		return
	}
	d := &s.f.hub.counts.delivered[s.shard]
	d.batches.Add(uint64(run.batches))
	d.bytes.Add(uint64(run.bytes))
	if run.at != 0 {
		d.delays.Observe(&meter.Latencies, meter.At(s.since)-run.at, uint64(run.batches))
	}
	*run = handed{}
}

// audience is the subscriptions of a stream. Its lock is its own, so that looking at all of them holds up no publish.
type audience struct {
	mu    sync.Mutex
	first *Subscription
}

func (a *audience) join(s *Subscription) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.after = a.first; s.after != nil {
		s.after.before = s
	}
	a.first = s
}

func (a *audience) leave(s *Subscription) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.before != nil {
		s.before.after = s.after
	} else {
		a.first = s.after
	}
	if s.after != nil {
		s.after.before = s.before
	}
}

// Stats is what the hub did since it was opened, and how it stands.
type Stats struct {
	Streams        int    // that there are
	Open           int    // with a feed, that is in use
	Published      uint64 // batches that were stored
	PublishedBytes uint64 // of their payloads
	GapsClosed     uint64 // times that missing sequences were given up (D4)
	Evicted        uint64 // batches that were too old or too much (D12)
	EvictedBytes   uint64 // of their payloads
	Delivered      uint64 // batches that were sent to subscribers, once for each
	DeliveredBytes uint64 // of their frames
	TailBytes      int64  // of recent batches, held in memory for subscribers

	// Delays is how long recent batches took from their admission to a subscriber's connection, in nanoseconds. What a
	// subscriber catches up with is not in it.
	Delays meter.Distribution

	// SlowestLag is how many sequences the subscriber that is furthest behind has yet to get, and Backlog is how many all
	// of them have yet to get.
	SlowestLag uint64
	Backlog    uint64
}

// Stats adds everything up. It looks at every subscription, which takes milliseconds for a hundred thousand.
func (h *Hub) Stats() Stats {
	n := &h.counts
	s := Stats{
		Published: n.published.Load(), PublishedBytes: n.publishedBytes.Load(), GapsClosed: n.gaps.Load(),
		Evicted: n.evicted.Load(), EvictedBytes: n.evictedBytes.Load(), TailBytes: h.tail.Load(),
	}
	for i := range n.delivered {
		d := &n.delivered[i]
		s.Delivered += d.batches.Load()
		s.DeliveredBytes += d.bytes.Load()
		s.Delays.Add(&d.delays)
	}
	h.catalog.mu.RLock()
	s.Streams = len(h.catalog.byID)
	h.catalog.mu.RUnlock()
	open := h.catalog.open()
	s.Open = len(open)
	for _, e := range open {
		e.mu.Lock()
		f := e.feed
		e.mu.Unlock()
		if f != nil {
			f.lags(&s)
		}
	}
	return s
}

// lags adds how far the subscribers of a feed are behind what can be sent.
func (f *feed) lags(to *Stats) {
	f.mu.Lock()
	watched := f.tail.subscribers > 0
	low, end := f.state.Low(), f.state.Final()
	f.mu.Unlock()
	if !watched {
		return
	}
	f.audience.mu.Lock()
	defer f.audience.mu.Unlock()
	for s := f.audience.first; s != nil; s = s.after {
		if next := max(weir.Seq(s.stand.Load()), low); next < end {
			lag := uint64(end - next)
			to.SlowestLag = max(to.SlowestLag, lag)
			to.Backlog += lag
		}
	}
}
