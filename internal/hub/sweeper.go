package hub

import (
	"container/heap"
	"context"
	"errors"
	"sync"
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
	queue expiries
	fresh []*Stream // of which nothing is known since the start
}

// expiry is when a resting stream has something to evict.
type expiry struct {
	at weir.Time
	s  *Stream
}

type expiries []expiry

func (q expiries) Len() int           { return len(q) }
func (q expiries) Less(i, j int) bool { return q[i].at < q[j].at }
func (q expiries) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *expiries) Push(x any)        { *q = append(*q, x.(expiry)) }
func (q *expiries) Pop() any {
	old := *q
	x := old[len(old)-1]
	old[len(old)-1] = expiry{}
	*q = old[:len(old)-1]
	return x
}

func (w *sweeper) init(h *Hub) {
	w.h = h
	h.catalog.mu.RLock()
	defer h.catalog.mu.RUnlock()
	for _, s := range h.catalog.byID {
		w.fresh = append(w.fresh, s)
	}
}

// later has the stream looked at when its oldest batch expires.
func (w *sweeper) later(s *Stream, at weir.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	heap.Push(&w.queue, expiry{at, s})
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

func (w *sweeper) sweep() {
	for _, s := range w.due() {
		if f, err := s.acquire(context.Background()); err == nil {
			f.release()
		}
		select {
		case <-w.h.closing:
			return
		default:
		}
	}
	var trims sync.WaitGroup
	slots := make(chan struct{}, 256)
	now := w.h.now()
	for _, s := range w.h.catalog.open() {
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
	for len(w.queue) > 0 && w.queue[0].at <= now && len(list) < openAtOnce {
		list = append(list, heap.Pop(&w.queue).(expiry).s)
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
