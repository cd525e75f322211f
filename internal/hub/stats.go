package hub

import (
	"sync"
	"sync/atomic"

	"weir"
	"weir/internal/meter"
)

// counters count the work of the hub. Commit adds published batches in groups, when they become
// durable. Deliveries are counted in several shards, because many cores deliver at once. Each
// subscription uses one of the shards.
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

// handed describes the frames that a subscriber got from one call of Next.
type handed struct {
	batches int
	bytes   int
	at      int64 // when the oldest of these batches was admitted, by the clock of package meter; 0 if they were read from the log
}

// countSent counts the frames of the previous call of Next as delivered: a subscriber that calls
// Next again has sent them. All these batches count with the delay of the oldest.
func (s *Subscription) countSent() {
	s.position.Store(uint64(s.next))
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

// audience is the linked list of a stream's subscriptions. It has its own lock, so that Stats can
// walk through all subscriptions without delaying publishes.
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

// Stats holds counters since the hub was opened, and current values.
type Stats struct {
	Streams        int    // number of streams
	Open           int    // streams with an open log
	Published      uint64 // batches stored by this node
	PublishedBytes uint64 // payload bytes of the published batches
	GapsClosed     uint64 // stored markers; each is a log entry that closes gaps (D4)
	Evicted        uint64 // evicted batches (D12)
	EvictedBytes   uint64 // payload bytes of the evicted batches
	Delivered      uint64 // batches sent to subscribers, counted per subscriber
	DeliveredBytes uint64 // bytes of the frames (encoded batches) sent
	TailBytes      int64  // bytes of recent batches held in memory for subscribers
	IndexBytes     int64  // bytes of memory for all batches and idempotency keys (D12), as measured in the last second
	IndexLimit     int64  // limit of IndexBytes; above it, projects that use more than their share cannot publish

	// Delays is the distribution of the time from the admission of a batch to its delivery, in
	// nanoseconds. It does not include batches that subscribers read from the log to catch up.
	Delays meter.Distribution

	// SlowestLag is the number of sequences that the slowest subscriber has yet to receive. Backlog
	// is the sum over all subscribers.
	SlowestLag uint64
	Backlog    uint64
}

// Stats returns the counters. It visits every subscription, which takes milliseconds for 100,000 of
// them.
func (h *Hub) Stats() Stats {
	n := &h.counts
	s := Stats{
		Published: n.published.Load(), PublishedBytes: n.publishedBytes.Load(), GapsClosed: n.gaps.Load(),
		Evicted: n.evicted.Load(), EvictedBytes: n.evictedBytes.Load(), TailBytes: h.tail.Load(),
		IndexBytes: h.room.used.Load(), IndexLimit: h.opts.IndexBytes,
	}
	for i := range n.delivered {
		d := &n.delivered[i]
		s.Delivered += d.batches.Load()
		s.DeliveredBytes += d.bytes.Load()
		s.Delays.Add(&d.delays)
	}
	h.catalog.mu.RLock()
	s.Streams = h.catalog.byID.Len()
	h.catalog.mu.RUnlock()
	open := h.catalog.open()
	s.Open = len(open)
	for _, e := range open {
		e.mu.Lock()
		f := e.traffic.open()
		e.mu.Unlock()
		if f != nil {
			f.lags(&s)
		}
	}
	return s
}

// lags adds the lags of a feed's subscribers to the statistics. A lag is the distance from a
// subscriber's position to the first sequence that is not final (not yet stored, and not closed).
func (f *feed) lags(to *Stats) {
	f.mu.Lock()
	watched := f.tail.wanted()
	low, end := f.state.Low(), f.state.Final()
	f.mu.Unlock()
	if !watched {
		return
	}
	a := &f.hall.Load().audience
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := a.first; s != nil; s = s.after {
		lag := s.lag(low, end)
		to.SlowestLag = max(to.SlowestLag, lag)
		to.Backlog += lag
	}
}

// Lag returns the number of sequences that the subscriber has yet to receive. Unlike the other
// methods, it can be called by any goroutine, even after Close.
func (s *Subscription) Lag() uint64 {
	s.f.mu.Lock()
	low, end := s.f.state.Low(), s.f.state.Final()
	s.f.mu.Unlock()
	return s.lag(low, end)
}

// lag returns the distance to the sequence end from the position of the subscription, or from low
// if low is higher.
func (s *Subscription) lag(low, end weir.Seq) uint64 {
	if next := max(weir.Seq(s.position.Load()), low); next < end {
		return uint64(end - next)
	}
	return 0
}
