package hub

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

const (
	sweepEvery = time.Second
	// idleFor is how long an unused feed stays open.
	idleFor = 10 * time.Second
	// A trim removes evicted batches from the log. Each trim writes a record to the log, so batches
	// are trimmed in groups: once trimBytes have been evicted, or trimAfter after the first
	// eviction.
	trimBytes = 256 << 10
	trimAfter = 5 * time.Second
	// Every trim also writes a note, a checkpoint that holds the idempotency keys of evicted
	// batches and can reach 3 MB. So a stream with many keys is trimmed less often: once it has
	// evicted noteShare times the size of the note, or after a longer time. This time grows by
	// trimAfter for every shortNote bytes of the note, up to trimLatest. So notes make up at most a
	// fifth of all bytes written for the stream, or about one kilobyte per second.
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
//   - opens idle streams whose oldest batch has expired, because opening a stream evicts its
//     expired batches, and
//   - after a start, opens every stream once, because only opening a stream shows when its batches
//     expire.
//
// It opens streams in the background (checkIdle). Opening a stream can take long, and must delay
// neither the trims of other streams nor their opening. On a shared store only the leading node
// opens idle streams. It opens each of them at least once per idleCheckEvery.
type sweeper struct {
	h *Hub

	mu        sync.Mutex
	queue     checkQueue
	unchecked []*Stream // streams that have not been opened since the start

	checking atomic.Bool // checkIdle is running in the background
	long     sync.Mutex  // held while a long note is made and written
}

// checkQueue is a heap of idle streams, ordered by checkAt. Each stream is in it at most once.
type checkQueue []*Stream

func (q checkQueue) Len() int           { return len(q) }
func (q checkQueue) Less(i, j int) bool { return q[i].checkAt < q[j].checkAt }
func (q checkQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].queued, q[j].queued = i+1, j+1
}
func (q *checkQueue) Push(x any) {
	s := x.(*Stream)
	*q = append(*q, s)
	s.queued = len(*q)
}
func (q *checkQueue) Pop() any {
	old := *q
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	s.queued = 0
	return s
}

func (w *sweeper) init(h *Hub) {
	w.h = h
	h.catalog.mu.RLock()
	defer h.catalog.mu.RUnlock()
	all := slices.SortedFunc(maps.Values(h.catalog.byID), func(a, b *Stream) int { return cmp.Compare(a.log, b.log) })
	for _, s := range all { // oldest first, so that every start does the same
		if !h.shared {
			w.unchecked = append(w.unchecked, s)
		} else {
			// Another node may have opened the stream recently, so there is no hurry. The random
			// time spreads the load.
			w.checkBy(s, h.now().Add(rand.N(idleCheckEvery)))
		}
	}
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
		heap.Fix(&w.queue, s.queued-1)
	}
}

// forget removes a deleted stream from the queue. Otherwise the stream would stay in the queue
// until the time at which its oldest batch would have expired, which can be years away.
func (w *sweeper) forget(s *Stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.gone = true
	if s.queued > 0 {
		heap.Remove(&w.queue, s.queued-1)
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

// sweep does one round. It waits for the trims that it started, so that a feed never has two trims
// at once.
func (w *sweeper) sweep() {
	w.checkIdle()
	var trims sync.WaitGroup
	slots := make(chan struct{}, 256)
	now := w.h.now()
	for _, s := range w.h.catalog.open() {
		if w.h.isStopping() {
			break
		}
		s.mu.Lock()
		f := s.feed
		s.mu.Unlock()
		if f == nil {
			continue
		}
		if f.isBehind() {
			w.h.closeFeed(s, true)
			continue
		}
		if f.wantsTrim(now) {
			slots <- struct{}{}
			trims.Go(func() {
				f.trim()
				<-slots
			})
		}
		f.measure()
		if f.used.Swap(false) || f.idle == 0 || f.idle > now {
			f.idle = now
		} else if now-f.idle >= weir.Time(idleFor.Milliseconds()) {
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
	w.unchecked = w.unchecked[n:]
	for len(w.queue) > 0 && w.queue[0].checkAt <= now && len(list) < openAtOnce {
		list = append(list, heap.Pop(&w.queue).(*Stream))
	}
	return list
}

// wantsTrim evicts expired batches and reports whether it is time to trim them from the log.
func (f *feed) wantsTrim(now weir.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped {
		return false
	}
	f.evict(now)
	if f.trimmed >= f.state.Low() {
		return false
	}
	if f.untrimmed == 0 {
		f.untrimmed = now
	}
	note := int64(stream.NoteSize(f.state, f.ahead))
	waited := time.Duration(now-f.untrimmed) * time.Millisecond
	return f.evicted >= max(trimBytes, noteShare*note) || waited >= min(trimAfter*time.Duration(1+note/shortNote), trimLatest)
}

// trim makes the low mark durable. All batches below this mark were evicted, and the log may
// reclaim their entries. On a shared store the engine asks for the mark again with Note, at the
// trim's position in the log, because other nodes may have appended and evicted in the meantime.
func (f *feed) trim() {
	f.mu.Lock()
	if stream.NoteSize(f.state, f.ahead) >= longNote {
		f.mu.Unlock()
		f.hub.sweeper.long.Lock()
		defer f.hub.sweeper.long.Unlock()
		f.mu.Lock()
	}
	c := f.state.Checkpoint(f.ahead)
	f.evicted, f.untrimmed = 0, 0
	f.mu.Unlock()
	low := c.Low()
	err := f.log.Trim(context.Background(), low, c.Encode())
	if err != nil {
		if !errors.Is(err, engine.ErrDropped) && !errors.Is(err, engine.ErrClosed) {
			f.hub.opts.Logger.Warn("failed to trim evicted batches, will retry", "stream", f.s.ID, "error", err)
		}
		return
	}
	f.mu.Lock()
	f.trimmed = max(f.trimmed, low)
	f.mu.Unlock()
	f.measure()
}
