package hub

import (
	"context"
	"runtime"
	"sync"
	"time"

	"weir"
)

// This file holds what a hub does because other nodes may use the same store. Two things follow from
// sharing:
//
// First, this node's view of the catalog and of a stream may be out of date. Most positive answers
// are right all the same: a stored batch is a stored batch. A refusal may be wrong, because another
// node may just have created the missing stream, or moved the cursor closer to a sequence that was
// too far ahead. So before a refusal, and before an answer that must be current such as a cursor,
// the hub catches up: it waits until it knows everything that any node acknowledged before the
// call. If no other node uses the store, there is nothing to wait for.
//
// Second, work that time triggers, such as evicting expired batches of idle streams, should be done
// by one node only.

// idleCheckEvery is how often one node opens each idle stream of a shared store to evict its
// expired batches. The node that used the stream last would have done so, but it may be down.
const idleCheckEvery = time.Hour

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
	if len(due) == 0 || w.h.shared && !w.h.leads() {
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

// Find is Stream, except that it catches up with the other nodes before it returns StreamNotFound.
func (h *Hub) Find(ctx context.Context, id weir.StreamID) (*Stream, error) {
	if s, err := h.Stream(id); err == nil {
		return s, nil
	}
	if err := h.engine.CatchUp(ctx); err != nil {
		return nil, clientError(id, err)
	}
	return h.Stream(id)
}

// catchUp returns when the feed knows every entry that any node acknowledged before the call.
func (f *feed) catchUp(ctx context.Context) error {
	return clientError(f.s.ID, f.log.CatchUp(ctx))
}

// refresh is catchUp for callers that prefer an old answer to none: it gives up after a second and
// ignores errors.
func (f *feed) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	f.catchUp(ctx)
}

// maxParallel bounds how many streams a list or an idle check opens concurrently.
const maxParallel = 32

// parallel is how many streams an idle check opens concurrently. Opening a log of this process takes
// a core, and at most half of them should do that.
func (w *sweeper) parallel() int {
	if !w.h.shared {
		return max(1, min(maxParallel, runtime.GOMAXPROCS(0)/2))
	}
	return maxParallel
}

// objects returns the stream objects of a page, and an error for each. On a shared store each one
// may have to ask the servers, so they are read concurrently.
func (h *Hub) objects(ctx context.Context, page []*Stream) ([]weir.Stream, []error) {
	list, faults := make([]weir.Stream, len(page)), make([]error, len(page))
	if !h.shared {
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
