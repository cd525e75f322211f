package hub

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
)

const (
	sweepEvery = time.Second
	// idleFor is how long a feed that nobody uses stays open.
	idleFor = 10 * time.Second
	// trimBytes and trimAfter bound how much is evicted before the log hears of it: a record in the log is worth it
	// for so many bytes, or after so long.
	trimBytes = 256 << 10
	trimAfter = 5 * time.Second
	// openAtOnce bounds how many resting streams a sweep opens.
	openAtOnce = 2000
)

// sweeper does what time asks for: it trims what was evicted, folds feeds away that nobody uses, and opens resting
// streams when their oldest batch expires. There is one for all streams.
type sweeper struct {
	h *Hub

	mu    sync.Mutex
	queue looks
	fresh []*Stream // of which nothing is known since the start

	looking atomic.Bool // at streams of a shared store
}

// looks are the resting streams by when they have something to evict, each of them once.
type looks []*Stream

func (q looks) Len() int           { return len(q) }
func (q looks) Less(i, j int) bool { return q[i].look < q[j].look }
func (q looks) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].queued, q[j].queued = i+1, j+1
}
func (q *looks) Push(x any) {
	s := x.(*Stream)
	*q = append(*q, s)
	s.queued = len(*q)
}
func (q *looks) Pop() any {
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
	for _, s := range h.catalog.byID {
		if h.shared == nil {
			w.fresh = append(w.fresh, s)
		} else {
			w.later(s, h.now().Add(rand.N(lookEvery))) // others may have looked just now
		}
	}
}

// later has the stream looked at when its oldest batch expires, or before.
func (w *sweeper) later(s *Stream, at weir.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.queued == 0:
		s.look = at
		heap.Push(&w.queue, s)
	case at < s.look:
		s.look = at
		heap.Fix(&w.queue, s.queued-1)
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

// open opens a resting stream, which evicts what is too old.
func (w *sweeper) open(s *Stream) {
	if f, err := s.acquire(context.Background()); err == nil {
		f.release()
	}
}

func (w *sweeper) sweep() {
	if w.h.shared != nil {
		w.lookAround()
	} else {
		for _, s := range w.due() {
			w.open(s)
			select {
			case <-w.h.closing:
				return
			default:
			}
		}
	}
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
			w.h.fold(s, true)
			continue
		}
		if f.wantsTrim(now) {
			slots <- struct{}{}
			trims.Go(func() {
				f.trim()
				<-slots
			})
		}
		if f.used.Swap(false) || f.idle == 0 || f.idle > now {
			f.idle = now
		} else if now-f.idle >= weir.Time(idleFor.Milliseconds()) {
			w.h.fold(s, false)
		}
	}
	trims.Wait()
}

func (f *feed) isBehind() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.behind
}

// due takes the streams that must be looked at.
func (w *sweeper) due() []*Stream {
	now := w.h.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.fresh), openAtOnce)
	list := w.fresh[:n:n]
	w.fresh = w.fresh[n:]
	for len(w.queue) > 0 && w.queue[0].look <= now && len(list) < openAtOnce {
		list = append(list, heap.Pop(&w.queue).(*Stream))
	}
	return list
}

// wantsTrim evicts what is too old, and tells whether the log should hear of it.
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
	return f.evicted >= trimBytes || now-f.untrimmed >= weir.Time(trimAfter.Milliseconds())
}

// trim makes the low mark durable and lets the log give up what is below it. Of a store that is shared, the log asks again at the
// trim's place what is below it.
func (f *feed) trim() {
	f.mu.Lock()
	low, note := f.state.Low(), f.state.Checkpoint()
	f.evicted, f.untrimmed = 0, 0
	f.mu.Unlock()
	err := f.log.Trim(context.Background(), low, note)
	if err != nil {
		if !errors.Is(err, engine.ErrDropped) && !errors.Is(err, engine.ErrClosed) {
			f.hub.opts.Logger.Warn("evicted batches keep their space", "stream", f.s.ID, "error", err)
		}
		return
	}
	f.mu.Lock()
	f.trimmed = max(f.trimmed, low)
	f.mu.Unlock()
}
