package hub

import (
	"context"
	"runtime"
	"sync"
	"time"

	"weir"
	"weir/internal/engine"
)

// This file holds what a hub does differently if other nodes use the same store (engine.Shared).
// Two things follow from sharing:
//
// First, this node's view of the catalog and of a stream may be out of date. Most positive answers
// are right all the same: a stored batch is a stored batch. A refusal may be wrong, because another
// node may just have created the missing stream, or moved the cursor closer to a sequence that was
// too far ahead. So before a refusal, and before an answer that must be current such as a cursor,
// the hub catches up: it waits until it knows everything that any node acknowledged before the
// call.
//
// Second, work that time triggers, such as evicting expired batches of idle streams, should be done
// by one node only.

// idleCheckEvery is how often one node opens each idle stream of a shared store to evict its
// expired batches. The node that used the stream last would have done so, but it may be down.
const idleCheckEvery = time.Hour

// share starts following the changes of other nodes, if the store is shared.
func (h *Hub) share() {
	if s, ok := h.engine.(engine.Shared); ok {
		h.shared = s
		s.Watch(h.documentChanged)
	}
}

// documentChanged updates the catalog after a stream was created or deleted, on this node or
// another. It is called in the order of revisions. A changed document whose log is another one than
// before means that the stream was deleted and its id used again.
func (h *Hub) documentChanged(c engine.Change) {
	id, ok := StreamOf(c.Key)
	if !ok {
		return
	}
	if c.Deleted {
		h.catalog.noteDeleted(id, c.Created)
	}
	h.catalog.mu.RLock()
	known := h.catalog.byID[id]
	h.catalog.mu.RUnlock()
	if known != nil && (c.Deleted || known.log != c.Created) {
		known.mu.Lock()
		known.deleted = true
		known.mu.Unlock()
		h.forget(known)
		known = nil
	}
	if c.Deleted || known != nil {
		return
	}
	s, err := h.streamOf(c.Document)
	if err != nil {
		h.opts.Logger.Error("ignored a stream of another node: cannot read its document", "key", c.Key, "error", err)
		return
	}
	h.catalog.add(s)
	h.sweeper.checkBy(s, h.now().Add(idleCheckEvery))
}

// Lead sets the function that tells whether this node does the work that only one node of a shared
// store should do. Until Lead is called, this node does it.
func (h *Hub) Lead(first func() bool) { h.first.Store(&first) }

func (h *Hub) leads() bool {
	first := h.first.Load()
	return first == nil || (*first)()
}

// checkIdle opens the idle streams whose check is due, which evicts their expired batches. It runs
// in the background, because opening a log reads the disk, or asks servers that may be slow. At most
// one check runs at a time. On a shared store only the leading node opens streams; the others
// postpone theirs.
func (w *sweeper) checkIdle() {
	if !w.checking.CompareAndSwap(false, true) {
		return
	}
	due := w.due()
	if len(due) == 0 || w.h.shared != nil && !w.h.leads() {
		for _, s := range due {
			w.checkBy(s, w.h.now().Add(idleCheckEvery))
		}
		w.checking.Store(false)
		return
	}
	w.h.work.Go(func() {
		defer w.checking.Store(false)
		var all sync.WaitGroup
		slots := make(chan struct{}, w.parallel())
		for _, s := range due {
			select {
			case slots <- struct{}{}:
			case <-w.h.closing:
				all.Wait()
				return
			}
			all.Go(func() {
				w.open(s)
				<-slots
			})
		}
		all.Wait()
	})
}

// streamOf returns the stream that a document describes.
func (h *Hub) streamOf(d engine.Document) (*Stream, error) {
	spec, created, err := readDocument(d)
	if err != nil {
		return nil, err
	}
	return &Stream{Spec: spec, CreatedAt: created, hub: h, log: d.Created}, nil
}

// catchUp returns when the catalog knows every creation and deletion that any node acknowledged
// before the call. If the store is not shared, it always does.
func (h *Hub) catchUp(ctx context.Context) error {
	if h.shared == nil {
		return nil
	}
	return h.shared.CatchUp(ctx)
}

// Find is Stream, except that it catches up with the other nodes before it returns StreamNotFound.
func (h *Hub) Find(ctx context.Context, id weir.StreamID) (*Stream, error) {
	s, err := h.Stream(id)
	if err == nil || h.shared == nil {
		return s, err
	}
	if err := h.catchUp(ctx); err != nil {
		return nil, clientError(id, err)
	}
	return h.Stream(id)
}

// catchUp returns when the feed knows every entry that any node acknowledged before the call. If
// the store is not shared, it always does.
func (f *feed) catchUp(ctx context.Context) error {
	if f.hub.shared == nil {
		return nil
	}
	if log, ok := f.log.(engine.SharedLog); ok {
		return clientError(f.s.ID, log.CatchUp(ctx))
	}
	return nil
}

// refresh is catchUp for callers that prefer an old answer to none: it gives up after a second and
// ignores errors.
func (f *feed) refresh(ctx context.Context) {
	if f.hub.shared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	f.catchUp(ctx)
}

// attend makes the engine report entries of other nodes immediately, until leave is called. Without
// it, the feed learns of them only when it catches up or appends.
func (f *feed) attend() {
	if log, ok := f.log.(engine.SharedLog); ok {
		log.Attend()
	}
}

func (f *feed) leave() {
	if log, ok := f.log.(engine.SharedLog); ok {
		log.Leave()
	}
}

// maxParallel bounds how many streams of a shared store a list or an idle check opens concurrently.
const maxParallel = 32

// parallel is how many streams an idle check opens concurrently. Opening a log of this process takes
// a core, and at most half of them should do that.
func (w *sweeper) parallel() int {
	if w.h.shared == nil {
		return max(1, min(maxParallel, runtime.GOMAXPROCS(0)/2))
	}
	return maxParallel
}

// objects returns the stream objects of a page, and an error for each. On a shared store each one
// may have to ask the servers, so they are read concurrently.
func (h *Hub) objects(ctx context.Context, page []*Stream) ([]weir.Stream, []error) {
	list, faults := make([]weir.Stream, len(page)), make([]error, len(page))
	if h.shared == nil {
		for i, s := range page {
			list[i], faults[i] = s.Object(ctx)
		}
		return list, faults
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i, s := range page {
		slots <- struct{}{}
		all.Go(func() {
			list[i], faults[i] = s.Object(ctx)
			<-slots
		})
	}
	all.Wait()
	return list, faults
}
