package hub

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/shrink"
	"weir/internal/stream"
)

const (
	sweepEvery = time.Second
	// idleFor is how long an unused feed stays open.
	idleFor = 10 * time.Second
	// While more than manyOpen feeds are open, an unused feed is closed after idleSoon, and its
	// evicted batches are removed from the log at once. So a program that publishes once to each of
	// a million streams does not fill the memory with open feeds.
	manyOpen = 10_000
	idleSoon = time.Second
	// A trim removes evicted batches from the log. Each trim writes a record to the log, so batches
	// are trimmed in groups: once trimBytes have been evicted, or when Options.TrimAfter has
	// passed since the first eviction. After a crash before the trim, the evicted batches are still
	// in the log, but they cannot be read: opening the stream evicts them again, because eviction
	// depends only on the log and the clock (D12).
	trimBytes = 256 << 10
	trimAfter = time.Minute // default of Options.TrimAfter
	// The sweeper opens an unused stream a little after its oldest batch has expired, so that
	// batches which expire soon after one another are evicted together. The delay is the retention
	// divided by lateShare, but at most the constant latest. Readers do not notice the delay: an
	// expired batch cannot be read, evicted or not.
	lateShare = 16
	latest    = 10 * time.Minute
	// Every trim also writes a note, a checkpoint that holds the idempotency keys of evicted
	// batches and can reach 3 MB. So a stream with many keys is trimmed less often: once it has
	// evicted noteShare times the size of the note, or after a longer time than TrimAfter. This
	// time grows by TrimAfter for every shortNote bytes of the note, up to trimLatest. So notes are
	// at most a fifth of all bytes written for a busy stream, and at most about one kilobyte per
	// second for any other stream.
	noteShare  = 4
	shortNote  = 4 << 10
	trimLatest = time.Hour
	// Notes of longNote bytes or more are made and written one at a time, so that the notes of many
	// streams do not take much memory at the same time.
	longNote = 64 << 10
	// openAtOnce bounds how many idle streams one sweep opens.
	openAtOnce = 2000
)

// sweeper does the work that time triggers. Once per second, for all streams, it
//
//   - evicts expired batches of open feeds and trims evicted batches from their logs,
//   - closes feeds that have been idle for idleFor,
//   - deletes streams whose lifetime has ended (expiry.go),
//   - opens idle streams whose oldest batch has expired, because opening a stream evicts its
//     expired batches, and
//   - after a start, opens each stream whose next check cannot be computed from what the engine knows
//     (see firstCheck).
//
// It opens streams in the background (checkIdle). Opening a stream can take long, and must delay
// neither the trims of other streams nor their opening. On a shared store only the leading node
// opens idle streams. It opens each of them at least once per idleCheckEvery.
type sweeper struct {
	h *Hub

	mu        sync.Mutex
	queue     checkQueue
	unchecked []*Stream // streams to be opened as soon as possible after the start

	checking atomic.Bool // checkIdle is running in the background
	trims    trimTurns
	long     bool // a long note is being made and written; guarded by trims.mu
}

// trimTurns makes trims wait for each other. It is not a mutex, because a trim waits for the disk, and
// a simulation cannot detect that a goroutine waits for a mutex.
type trimTurns struct {
	mu    sync.Mutex
	ended sync.Cond // a trim has ended; uses mu
}

// take waits until *busy is false, and sets it to true. The variable is guarded by t.mu.
func (t *trimTurns) take(busy *bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for *busy {
		t.ended.Wait()
	}
	*busy = true
}

// give sets *busy to false.
func (t *trimTurns) give(busy *bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*busy = false
	t.ended.Broadcast()
}

// checkQueue is a heap of idle streams, ordered by checkAt. Each stream is in it at most once.
type checkQueue []*Stream

func (q checkQueue) Len() int           { return len(q) }
func (q checkQueue) Less(i, j int) bool { return q[i].checkAt < q[j].checkAt }
func (q checkQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].queued, q[j].queued = int32(i+1), int32(j+1)
}
func (q *checkQueue) Push(x any) {
	s := x.(*Stream)
	*q = append(*q, s)
	s.queued = int32(len(*q))
}
func (q *checkQueue) Pop() any {
	old := *q
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*q = shrink.Slice(old[:len(old)-1])
	s.queued = 0
	return s
}

// init records the memory that each stream uses, and when the sweeper must open it. No stream is
// open yet. init visits the streams in the order of their creation, because the engine's data about
// them mostly lies in memory in that order. Any other order takes several times as long.
func (w *sweeper) init(h *Hub) {
	w.h, w.trims.ended.L = h, &w.trims.mu
	all := h.Streams()
	type check struct {
		at weir.Time
		ok bool
	}
	checks := make([]check, len(all))
	var work sync.WaitGroup
	part := max((len(all)+1)/2, manyOpen) // two goroutines for many streams
	for from := 0; from < len(all); from += part {
		work.Go(func() {
			for i := from; i < min(from+part, len(all)); i++ {
				checks[i].at, checks[i].ok = w.firstCheck(all[i])
			}
		})
	}
	work.Wait()
	for i, s := range all {
		at, ok := checks[i].at, checks[i].ok
		switch {
		case h.shared:
			// Another node may have opened the stream recently, so there is no hurry. A time
			// that depends on the stream spreads the load.
			w.checkBy(s, h.now().Add(time.Duration(uint64(s.log)*0x9e3779b97f4a7c15%uint64(idleCheckEvery))))
		case !ok:
			w.unchecked = append(w.unchecked, s)
		case at != never:
			w.checkBy(s, at)
		}
	}
}

// firstCheck returns the time at which the sweeper must open a stream that has not been used since the
// start. It also records what the engine knows of the stream: the memory that the stream uses, its
// cursor and its size. firstCheck returns false if the stream must be opened at once, for one of
// these reasons:
//
//   - a gap may be open, whose grace begins now (D4),
//   - the stream may hold more than MaxBytes, because the server stopped before a trim, or
//   - the cursor is not known, because all batches were evicted or some are lost.
func (w *sweeper) firstCheck(s *Stream) (weir.Time, bool) {
	o, known := w.h.engine.Outline(s.log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setUse(o.Memory)
	s.ended.Store(o.Ended)
	if l := lifeOf(s); l != nil {
		l.touch(o.Newest) // the document may not know of this batch yet
		l.proven.Store(l.proven.Load() || known)
	}
	if known && o.Entries == 0 && o.Low == 0 {
		s.summary = empty(s.CreatedAt)
		return never, true
	}
	most := o.Bytes + int64(o.Entries)*(weir.MinCharge+weir.MaxIdempotencyKey)
	if !known || o.Batches == 0 || o.Batches != o.Entries || o.First > max(o.Low, 1) ||
		o.Last-o.First+1 != weir.Seq(o.Entries) || most > s.bounds.Load().maxBytes {
		return 0, false
	}
	// The newest batch is evicted last, so the cursor is the highest sequence in the log.
	expiry := o.Oldest.Add(s.retention())
	s.summary = summary{cursor: weir.Cursor{Cursor: o.Last, UpdatedAt: o.Newest}, bytes: o.Bytes, until: expiry}
	return s.checkTime(expiry), true
}

func (s *Stream) retention() time.Duration { return s.bounds.Load().retention() }

// checkTime returns the time at which the sweeper opens an idle stream whose first batch expires at
// the given time.
func (s *Stream) checkTime(expiry weir.Time) weir.Time {
	return expiry.Add(min(s.retention()/lateShare, latest))
}

// checkBy makes the sweeper open the stream at the given time, or earlier if the queue already has
// an earlier time for it.
func (w *sweeper) checkBy(s *Stream, at weir.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.gone:
	case s.queued == 0:
		s.checkAt = at
		heap.Push(&w.queue, s)
	case at < s.checkAt:
		s.checkAt = at
		heap.Fix(&w.queue, int(s.queued)-1)
	}
}

// forget removes a deleted stream from the queue. Otherwise the stream would stay in the queue
// until the time at which its oldest batch would have expired, which can be 30 days away.
func (w *sweeper) forget(s *Stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.gone = true
	if s.queued > 0 {
		heap.Remove(&w.queue, int(s.queued)-1)
	}
}

func (w *sweeper) run() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.sweep()
		case <-w.h.closing:
			return
		}
	}
}

// open opens an idle stream, because opening it evicts its expired batches. It ignores an error:
// the batches are then evicted when the stream is next used.
func (w *sweeper) open(s *Stream) {
	if f, err := s.acquire(context.Background()); err == nil {
		f.release()
	}
}

// sweep does one round. It waits for the trims that it started, so that trims do not pile up.
func (w *sweeper) sweep() {
	w.checkIdle()
	w.h.sweepLives()
	var trims sync.WaitGroup
	slots := make(chan struct{}, 256)
	now, open := w.h.now(), w.h.catalog.open()
	patience, many := idleFor, len(open) > manyOpen
	if many {
		patience = idleSoon
	}
	for _, s := range open {
		if w.h.isStopping() {
			break
		}
		f := s.openFeed()
		if f == nil {
			continue
		}
		if f.isBehind() {
			w.h.closeFeed(s, true)
			continue
		}
		if f.wantsTrim(now, many) {
			slots <- struct{}{}
			trims.Go(func() {
				_ = f.trim() // the next sweep tries again
				<-slots
			})
		}
		used := f.used.Swap(false)
		if used || w.h.shared {
			f.measure()
		}
		if used || f.idle == 0 || f.idle > now {
			f.idle = now
		} else if now-f.idle >= weir.Time(patience.Milliseconds()) {
			w.h.closeFeed(s, false)
		}
	}
	trims.Wait()
	w.h.acceptAgain()
}

func (f *feed) isBehind() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.behind
}

// due removes and returns the streams to be opened now, at most openAtOnce.
func (w *sweeper) due() []*Stream {
	now := w.h.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.unchecked), openAtOnce)
	list := w.unchecked[:n:n]
	if w.unchecked = w.unchecked[n:]; len(w.unchecked) == 0 {
		w.unchecked = nil // free the memory
	}
	for len(w.queue) > 0 && w.queue[0].checkAt <= now && len(list) < openAtOnce {
		list = append(list, heap.Pop(&w.queue).(*Stream))
	}
	return list
}

// untrimmed reports whether the log holds evicted batches. Called with f.mu held.
func untrimmed(f *feed) bool { return f.evicted > 0 && f.trimmed < f.state.Low() }

// wantsTrim evicts expired batches and reports whether it is time to trim them from the log: at
// once if the parameter hurry is true, otherwise when there are enough of them or they have waited
// for long enough.
func (f *feed) wantsTrim(now weir.Time, hurry bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped {
		return false
	}
	f.evict(now)
	if !untrimmed(f) {
		f.evicted, f.trimFrom = 0, 0 // another node may have trimmed
		return false
	}
	if f.trimFrom == 0 {
		f.trimFrom = now
	}
	note := int64(stream.NoteSize(f.state, f.ahead))
	waited := time.Duration(now-f.trimFrom) * time.Millisecond
	return hurry || f.evicted >= max(trimBytes, noteShare*note) || waited >= min(f.hub.opts.TrimAfter*time.Duration(1+note/shortNote), trimLatest)
}

// trim makes the low mark durable. All batches below this mark were evicted, and the log may
// reclaim their entries. On a shared store, other nodes may append and evict before this trim is
// written. So the engine calls Note when the position of the trim in the log is known, and stores
// the mark that Note returns. One trim runs at a time. Otherwise a trim could store a note that is
// older than the low mark of the log, and therefore useless.
func (f *feed) trim() error {
	turns := &f.hub.sweeper.trims
	turns.take(&f.trimming)
	defer turns.give(&f.trimming)
	f.mu.Lock()
	if stream.NoteSize(f.state, f.ahead) >= longNote {
		f.mu.Unlock()
		turns.take(&f.hub.sweeper.long)
		defer turns.give(&f.hub.sweeper.long)
		f.mu.Lock()
	}
	c, evicted := f.state.Checkpoint(f.ahead), f.evicted
	f.trimFrom = 0
	f.mu.Unlock()
	low := c.Low()
	err := f.log.Trim(context.Background(), low, c.Encode())
	if err != nil {
		// A wrong clock (ErrClock) is not logged here: the engine logs it once, whereas each stream
		// would log it again in each round of the sweeper.
		if !errors.Is(err, engine.ErrDropped) && !errors.Is(err, engine.ErrClosed) && !errors.Is(err, engine.ErrClock) {
			f.hub.opts.Logger.Warn("failed to trim evicted batches, will retry", "stream", f.s.ID, "error", err)
		}
		return err
	}
	f.mu.Lock()
	f.trimmed = max(f.trimmed, low)
	f.evicted = max(f.evicted-evicted, 0) // only after the trim: while the field evicted is above 0, closeFeed leaves the log open
	f.mu.Unlock()
	f.measure()
	return nil
}
