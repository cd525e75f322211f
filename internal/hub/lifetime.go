package hub

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"weir"
)

// This file deletes streams whose lifetime has ended (D37). A stream may have a time to live, which
// counts from its last use, and a fixed time at which it expires. A use is a publish, a read of
// batches, or the start of a subscription.
//
// The hub keeps the time of the last use in memory, so that a use costs no write. It stores the time
// in the document of the stream at most once per saveEvery. So the last use before a restart, or on
// another node of a shared store, may be up to saveEvery later than the document says. The hub
// assumes that it is, so no stream expires too early.

// life is the lifetime of one stream.
type life struct {
	s     *Stream
	until weir.Time    // when the stream expires, used or not; never if it has no such time
	used  atomic.Int64 // time of the last use, a weir.Time

	// Guarded by lives.mu.
	saved weir.Time // the last use according to the document
	at    weir.Time // when the sweeper looks at the stream again
	place int       // position in lives.queue, counted from 1; 0 if the stream is not in the queue
}

// lives are the streams with a limited lifetime.
type lives struct {
	of sync.Map // *Stream to *life

	mu    sync.Mutex
	queue lifeQueue

	busy atomic.Bool // sweep is running in the background
}

// lifeQueue is a heap of lives, ordered by the time at which the sweeper looks at them.
type lifeQueue []*life

func (q lifeQueue) Len() int           { return len(q) }
func (q lifeQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q lifeQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i+1, j+1
}
func (q *lifeQueue) Push(x any) {
	l := x.(*life)
	*q = append(*q, l)
	l.place = len(*q)
}
func (q *lifeQueue) Pop() any {
	old := *q
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	l.place = 0
	return l
}

// saveEvery returns the least time between two writes of the last use: an eighth of the stream's
// time to live, but at least five seconds.
func (o *origin) saveEvery() time.Duration {
	return max(time.Duration(o.TTLSeconds)*time.Second/8, 5*time.Second)
}

// live records the lifetime of a new stream, or of one that was just loaded. It does nothing if the
// stream lives until it is deleted.
func (h *Hub) live(s *Stream, spec *Spec) {
	if !s.limited() {
		return
	}
	l := &life{s: s, until: cmp.Or(spec.ExpiresAt, never), saved: max(spec.usedAt, s.CreatedAt)}
	used := l.saved
	if !h.catalog.isLoaded() || h.shared {
		used = min(h.now(), l.saved.Add(s.saveEvery()))
	}
	l.used.Store(int64(used))
	h.lives.of.Store(s, l)
	h.lives.mu.Lock()
	defer h.lives.mu.Unlock()
	l.at = l.next()
	heap.Push(&h.lives.queue, l)
}

// limited reports whether the stream has a limited lifetime.
func (o *origin) limited() bool { return o.TTLSeconds > 0 || o.Expires }

func lifeOf(s *Stream) *life {
	if !s.limited() {
		return nil
	}
	if l, ok := s.hub.lives.of.Load(s); ok {
		return l.(*life)
	}
	return nil
}

// forgetLife removes a deleted stream.
func (h *Hub) forgetLife(s *Stream) {
	l := lifeOf(s)
	if l == nil {
		return
	}
	h.lives.of.Delete(s)
	h.lives.mu.Lock()
	defer h.lives.mu.Unlock()
	if l.place > 0 {
		heap.Remove(&h.lives.queue, l.place-1)
	}
}

// use records that the stream is being used now.
func (s *Stream) use() {
	if l := lifeOf(s); l != nil {
		l.touch(s.hub.now())
	}
}

// touch records a use at the time now, unless a later use is known.
func (l *life) touch(now weir.Time) {
	for {
		before := l.used.Load()
		if int64(now) <= before || l.used.CompareAndSwap(before, int64(now)) {
			return
		}
	}
}

// end returns when the lifetime of the stream ends, unless it is used before.
func (l *life) end() weir.Time {
	if l.s.TTLSeconds == 0 {
		return l.until
	}
	end := weir.Time(l.used.Load()).Add(time.Duration(l.s.TTLSeconds) * time.Second)
	if l.s.hub.shared { // another node may have used the stream without saving it yet
		end = end.Add(l.s.saveEvery())
	}
	return min(end, l.until)
}

// expired reports whether the lifetime of the stream has ended.
func (s *Stream) expired(now weir.Time) bool {
	l := lifeOf(s)
	return l != nil && l.end() <= now
}

// next returns when the sweeper must look at the stream: when it expires, or when its last use must
// be stored. Called with lives.mu held.
func (l *life) next() weir.Time {
	if l.s.TTLSeconds == 0 {
		return l.until
	}
	return min(l.end(), l.saved.Add(l.s.saveEvery()+time.Second))
}

// sweepLives deletes the streams whose lifetime has ended, and stores the last use of others. It
// works in the background, because the store may be slow. On a shared store only the leading node
// deletes.
func (h *Hub) sweepLives() {
	v := &h.lives
	now := h.now()
	v.mu.Lock()
	var due []*life
	for len(v.queue) > 0 && v.queue[0].at <= now && len(due) < openAtOnce && !v.busy.Load() {
		due = append(due, heap.Pop(&v.queue).(*life))
	}
	v.mu.Unlock()
	if len(due) == 0 {
		return
	}
	v.busy.Store(true)
	h.work.Go(func() {
		defer v.busy.Store(false)
		for _, l := range due {
			h.sweepLife(l)
		}
	})
}

// sweepLife looks at one stream that is due, and puts it back into the queue unless it is deleted.
func (h *Hub) sweepLife(l *life) {
	var err error
	now, used := h.now(), weir.Time(l.used.Load())
	wait := time.Second
	switch {
	case l.end() <= now && (!h.shared || h.leads()):
		err = l.s.Delete(context.Background())
	case l.end() <= now:
		wait = 10 * time.Second // the leading node deletes the stream
	case used > l.saved:
		err = l.save(used)
	default:
		h.lives.mu.Lock()
		l.saved = now // nothing to store until the stream is used again
		h.lives.mu.Unlock()
	}
	if err != nil && !isNotFound(err) {
		h.opts.Logger.Warn("failed to end or store the lifetime of a stream, will retry", "stream", l.s.ID, "error", err)
	}
	if _, ok := h.lives.of.Load(l.s); !ok {
		return // deleted
	}
	h.lives.mu.Lock()
	defer h.lives.mu.Unlock()
	l.at = max(l.next(), now.Add(wait))
	heap.Push(&h.lives.queue, l)
}

// save stores the last use in the document of the stream.
func (l *life) save(used weir.Time) error {
	err := l.s.change(context.Background(), func(spec *Spec) error {
		spec.usedAt = max(spec.usedAt, used)
		return nil
	})
	if err == nil {
		l.s.hub.lives.mu.Lock()
		l.saved = max(l.saved, used)
		l.s.hub.lives.mu.Unlock()
	}
	return err
}
