package hub

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
)

// This file deletes streams whose lifetime has ended (D37). A stream may have a time to live, which
// counts from its last use, and a fixed time at which it expires. A use is a publish, a read of
// batches, or the start of a subscription.
//
// The hub keeps the time of the last use in memory, and stores it in the document of the stream
// only now and then. After a restart, and on the other nodes of a shared store, only the document
// and the log are known. So the hub makes sure that the document or the log always has a time that
// is close to the last use: earlier by at most the duration saveEvery(). After a restart, it
// assumes that the last use was later than the document says, by this duration. A stream may
// therefore expire later than it should, but never earlier. The delay is at most this duration, plus
// the constant spread on a shared store. Three rules ensure this:
//
//   - A read first stores its time if the time in the document is earlier by more than this
//     duration.
//   - A publish does not wait, because its batch has the time of the use. The sweeper soon stores
//     this time in the document, for the other nodes.
//   - Before a stream is deleted, lapse asks the log for the time of the newest batch, and the
//     document for the last use that any node has stored.
//
// On a shared store, another node may store a batch after lapse has asked the log. So lapse first
// stores an entry that ends the log, which the judge admits only if the lifetime has ended according
// to everything before this entry. No batch can follow it, so no acknowledged batch is deleted
// before its time. A read that another node answers at the moment of this entry does not prolong the
// life: by then, the stream had not been used for longer than its time to live.

// life is the lifetime of one stream.
type life struct {
	s      *Stream
	until  weir.Time     // the fixed time at which the stream expires, or the constant never if there is none
	used   atomic.Int64  // time of the last use, a weir.Time, or the constant dead
	proven atomic.Bool   // the last use is known to be no earlier than the newest batch in the log
	saved  atomic.Int64  // the last use according to the document, a weir.Time
	retry  atomic.Int64  // the earliest time for the next attempt to store the last use, a weir.Time
	saving chan struct{} // holds a value while a request stores the last use
	hasty  atomic.Bool   // the method hurry has put the stream at the front of the queue

	// Guarded by lives.mu.
	at    weir.Time // when the sweeper looks at the stream again
	place int       // position in lives.queue, counted from 1; 0 if the stream is not in the queue
}

// lives are the streams with a limited lifetime.
type lives struct {
	of sync.Map // maps a *Stream to its *life; entries are deleted with mu held

	mu    sync.Mutex
	queue lifeQueue

	busy atomic.Bool // sweepLives is working in the background
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

// saveEvery returns how old the last use in the document may become before the hub stores a newer
// one. This is an eighth of the stream's time to live, but at least five seconds. On a shared store
// it is at most half of the time to live, because endAfter adds it to the lifetime of the stream.
func (l *life) saveEvery() time.Duration {
	ttl := time.Duration(l.s.TTLSeconds) * time.Second
	every := max(ttl/8, 5*time.Second)
	if l.s.hub.shared {
		every = min(every, ttl/2)
	}
	return every
}

const (
	// saveWait is the longest time that a request waits until the last use is stored. A slow store
	// must not stop readers.
	saveWait = 2 * time.Second
	// lifeRetry is the time between two attempts to store the last use, or to delete the stream.
	lifeRetry = 10 * time.Second
	// spread is the longest time until the other nodes know of a publish that changes the last use
	// in the document. It is the time until the next round of the sweeper, which stores the change,
	// and a second until the nodes receive the change.
	spread = sweepEvery + time.Second
)

// dead is the value of life.used once the lifetime of the stream has ended for good.
const dead = math.MaxInt64

// live records the lifetime of a new stream, or of one that was just loaded. It does nothing if the
// lifetime is not limited.
func (h *Hub) live(s *Stream, spec *Spec) {
	if !s.limited() {
		return
	}
	l := &life{s: s, until: cmp.Or(spec.ExpiresAt, never), saving: make(chan struct{}, 1)}
	l.proven.Store(h.catalog.loaded.Load() || h.shared)
	used := max(spec.usedAt, s.CreatedAt)
	l.saved.Store(int64(used))
	if !h.catalog.loaded.Load() && !h.shared { // on a shared store, endAfter adds this time instead
		used = min(h.now(), used.Add(l.saveEvery()))
	}
	l.used.Store(int64(used))
	h.lives.of.Store(s, l)
	h.lives.mu.Lock()
	defer h.lives.mu.Unlock()
	l.at = l.end()
	heap.Push(&h.lives.queue, l)
}

// limited reports whether the stream has a limited lifetime.
func (o *origin) limited() bool { return o.TTLSeconds > 0 || o.Expires }

// lifeOf returns the lifetime of a stream, or nil if it is not limited or the stream is deleted.
func lifeOf(s *Stream) *life {
	if !s.limited() {
		return nil
	}
	if l, ok := s.hub.lives.of.Load(s); ok {
		return l.(*life)
	}
	return nil
}

// forgetLife removes the lifetime of a deleted stream.
func (h *Hub) forgetLife(s *Stream) {
	l := lifeOf(s)
	if l == nil {
		return
	}
	h.lives.mu.Lock()
	defer h.lives.mu.Unlock()
	h.lives.of.Delete(s)
	if l.place > 0 {
		heap.Remove(&h.lives.queue, l.place-1)
	}
}

// use records that a request is using the stream now. Unlike the method published, it may wait: if
// the last use in the document is too old, it stores the new one before it returns. If that fails,
// the use is only in memory, and the sweeper tries again: readers must be served even while the
// store takes no writes.
func (s *Stream) use(ctx context.Context) {
	l := lifeOf(s)
	if l == nil {
		return
	}
	if l.touch(s.hub.now()); !l.wantsSave() {
		return
	}
	if enterAlone(ctx, l.saving) != nil {
		return
	}
	defer func() { <-l.saving }()
	if !l.wantsSave() {
		return // another request has stored the time, or has failed to store it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveWait)
	defer cancel()
	if l.save(ctx) != nil {
		l.hurry()
	}
}

// published records, without waiting, that a batch was stored now. It does nothing if l is nil.
func (l *life) published() {
	if l == nil {
		return
	}
	if l.touch(l.s.hub.now()); l.wantsSave() {
		l.hurry()
	}
}

// touch records a use at the given time, unless a later use is known.
func (l *life) touch(at weir.Time) { raise(&l.used, at) }

// end returns the time at which the lifetime of the stream ends if the stream is not used again.
func (l *life) end() weir.Time { return l.endAfter(l.used.Load()) }

// endAfter returns the time at which the lifetime ends if the last use was at the given time.
func (l *life) endAfter(used int64) weir.Time {
	if used == dead {
		return 0
	}
	if l.s.TTLSeconds == 0 {
		return l.until
	}
	end := weir.Time(used).Add(time.Duration(l.s.TTLSeconds) * time.Second)
	if l.s.hub.shared { // another node may have used the stream and not stored the use yet
		end = end.Add(l.saveEvery() + spread)
	}
	return min(end, l.until)
}

// expired reports whether the lifetime of the stream has ended. This includes a stream with a
// limited lifetime that was deleted after the caller found it.
func (s *Stream) expired() bool {
	if !s.limited() {
		return false
	}
	l := lifeOf(s)
	return l == nil || l.isOver(s.hub.now())
}

// isOver reports whether the lifetime has ended. After it has returned true, it never returns false
// again, and no batch is admitted: once a client was told that the stream is gone, the stream does
// not come back, even if the clock is set back. (On a shared store only the deletion is final.)
// After a restart, isOver returns false until the newest batch of the log is known, because this
// batch may show a later use than the document.
func (l *life) isOver(now weir.Time) bool {
	for {
		used := l.used.Load()
		switch {
		case used == dead:
			return true
		case l.endAfter(used) > now:
			return false
		case l.s.hub.shared:
			return true
		case !l.proven.Load():
			return false
		case l.used.CompareAndSwap(used, dead):
			return true
		}
	}
}

// admits reports whether the stream still takes a batch now, and records the batch as a use.
// Without this check, a batch could be acknowledged and then deleted with its stream. It returns
// true if l is nil.
func (l *life) admits(now weir.Time) bool {
	if l == nil {
		return true
	}
	if l.isOver(now) {
		return false
	}
	l.touch(now) // does nothing if the lifetime has ended in the meantime
	return l.used.Load() != dead
}

// isUnsaved reports whether the last use is so much later than the document says that the stream
// could expire too early after a restart.
func (l *life) isUnsaved() bool {
	used := l.used.Load()
	return l.s.TTLSeconds > 0 && used != dead && weir.Time(used) > weir.Time(l.saved.Load()).Add(l.saveEvery())
}

// wantsSave reports whether it is time to store the last use.
func (l *life) wantsSave() bool { return l.isUnsaved() && l.s.hub.now() >= weir.Time(l.retry.Load()) }

// hurry makes the sweeper look at the stream soon.
func (l *life) hurry() {
	if !l.hasty.CompareAndSwap(false, true) {
		return
	}
	v := &l.s.hub.lives
	v.mu.Lock()
	defer v.mu.Unlock()
	if l.place > 0 { // otherwise the sweeper is looking at the stream just now
		l.at = min(l.at, max(l.s.hub.now(), weir.Time(l.retry.Load())))
		heap.Fix(&v.queue, l.place-1)
	}
}

// sweepLives deletes the streams whose lifetime has ended, and stores the last use of other
// streams. It works in the background, because the store may be slow. On a shared store only the
// leading node deletes.
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
			if h.isStopping() {
				return
			}
			h.sweepLife(l)
		}
	})
}

// sweepLife looks at one stream that is due, and puts it back into the queue unless it is deleted.
func (h *Hub) sweepLife(l *life) {
	l.hasty.Store(false)
	var err error
	wait := sweepEvery
	switch now := h.now(); {
	case l.end() <= now && (!h.shared || h.leads()): // on a shared store, the leading node deletes the stream
		err, wait = l.lapse(context.Background()), lifeRetry
	case l.wantsSave():
		err = l.save(context.Background())
	}
	if err != nil && !isNotFound(err) && !errors.Is(err, errNotTaken) {
		h.opts.Logger.Warn("failed to end or store the lifetime of a stream, will retry", "stream", l.s.ID, "error", err)
	}
	h.requeue(l, wait)
}

// requeue puts a stream back into the queue of lifetimes. It leaves out a stream that was deleted
// while the sweeper looked at it, because such a stream would never leave the queue again. If the
// lifetime of the stream has ended, the sweeper looks at it again after the duration wait.
func (h *Hub) requeue(l *life, wait time.Duration) {
	h.lives.mu.Lock()
	defer h.lives.mu.Unlock()
	if _, ok := h.lives.of.Load(l.s); !ok {
		return
	}
	now := h.now()
	if l.at = l.end(); l.at <= now {
		l.at = now.Add(wait)
	}
	if l.isUnsaved() {
		soon := now.Add(sweepEvery)
		if l.hasty.Load() { // the stream was used while the sweeper looked at it
			soon = now
		}
		l.at = min(l.at, max(soon, weir.Time(l.retry.Load())))
	} else {
		l.hasty.Store(false) // otherwise hurry would not put the stream at the front of the queue again
	}
	heap.Push(&h.lives.queue, l)
}

// errNotTaken is the error of save while the store takes no writes.
var errNotTaken = errors.New("the store takes no writes")

// save stores the last use in the document of the stream. On a full store it does not try, because
// that would use up the space for deleting streams and revoking keys.
func (l *life) save(ctx context.Context) error {
	h, used := l.s.hub, weir.Time(l.used.Load())
	if used == dead {
		return nil
	}
	err := errNotTaken
	if state := h.engine.Status().State; state == engine.Ready || state == engine.Skewed {
		err = l.s.change(ctx, func(spec *Spec) error {
			spec.usedAt = max(spec.usedAt, used)
			return nil
		})
	}
	if err != nil {
		l.retry.Store(int64(h.now().Add(lifeRetry)))
		return err
	}
	raise(&l.saved, used)
	return nil
}

// raise sets t to the given time, unless t is already later.
func raise(t *atomic.Int64, to weir.Time) {
	for {
		before := t.Load()
		if int64(to) <= before || t.CompareAndSwap(before, int64(to)) {
			return
		}
	}
}
