package hub

import (
	"context"
	"runtime"
	"sync"
	"time"

	"weir"
)

// This file holds the parts of a hub that exist because other nodes may use the same store. A
// shared store has two consequences:
//
// First, this node's knowledge of the catalog and of a stream may be out of date. Most positive
// answers are correct nevertheless: once a batch is stored, it stays stored. A refusal may be
// wrong. For example, another node may have just created the missing stream. Or another node may
// have raised the cursor, so that a sequence that was too far above the cursor is now allowed. So
// the hub catches up before a refusal, and before an answer that must be current, such as a cursor.
// To catch up is to wait until this node knows everything that any node acknowledged before the
// call. If no other node uses the store, there is nothing to wait for.
//
// Second, a single node, the leading node, should do some of the work that time triggers: it evicts
// the expired batches of idle streams, and deletes the streams whose lifetime has ended.

// idleCheckEvery is how often the leading node opens each idle stream of a shared store to evict
// the stream's expired batches. Normally the node that used the stream last evicts them, but that
// node may be down.
const idleCheckEvery = time.Hour

// Lead sets the function that reports whether this node is the leading node of a shared store. Until
// Lead is called, this node counts as leading.
func (h *Hub) Lead(first func() bool) { h.first.Store(&first) }

func (h *Hub) leads() bool {
	first := h.first.Load()
	return first == nil || (*first)()
}

// checkIdle opens the idle streams whose check is due. Opening a stream evicts its expired batches.
// checkIdle returns at once and opens the streams in the background, because opening a log reads
// the disk, or asks servers that may be slow. At most one check runs at a time. On a shared store
// only the leading node opens streams; the other nodes postpone their checks by idleCheckEvery.
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

// Find returns the stream with this id, like the method Stream. Before Find returns StreamNotFound,
// it catches up with the other nodes.
func (h *Hub) Find(ctx context.Context, id weir.StreamID) (*Stream, error) {
	if s := alive(h, id); s != nil {
		return s, nil
	}
	if err := h.engine.CatchUp(ctx); err != nil {
		return nil, clientError(id, err)
	}
	if err := h.endExpired(ctx, id); err != nil {
		return nil, err
	}
	return h.Stream(id)
}

// Replaced reports whether err says that the stream s does not exist, although there is a stream with
// its id. It returns an error if it cannot know. On a shared store, this node may learn from the log
// that another node has deleted the stream, before it learns that the id was used again. Or it may
// have refused a batch because the lifetime of the stream has ended, although another node has used
// the stream. A client that knows of a stream must not be told that there is none.
func Replaced(ctx context.Context, s *Stream, err error) (bool, error) {
	h := s.hub
	if !h.shared || !isNotFound(err) || err.Error() != notFound(s.ID).Error() { // the error may be about a batch
		return false, nil
	}
	if err := h.CatchUp(ctx); err != nil {
		return false, err
	}
	if err := h.endExpired(ctx, s.ID); err != nil {
		return false, err
	}
	other, err := h.Stream(s.ID)
	return err == nil && (other != s || s.limited()), nil
}

// endExpired deletes the stream with this id if its lifetime has ended according to this node. It
// does so only on a shared store, before this node tells a client that the stream does not exist.
// Otherwise another node that knows of a later use would still serve the stream.
func (h *Hub) endExpired(ctx context.Context, id weir.StreamID) error {
	if !h.shared {
		return nil
	}
	_, err := h.lapse(ctx, id)
	return err
}

// CatchUp waits until this node knows every stream that any node has created, changed or deleted
// before the call.
func (h *Hub) CatchUp(ctx context.Context) error { return clientError("", h.engine.CatchUp(ctx)) }

// catchUp waits until the feed knows every entry that any node acknowledged before the call.
func (f *feed) catchUp(ctx context.Context) error {
	return clientError(f.s.ID, f.log.CatchUp(ctx))
}

// refresh calls catchUp for callers that prefer an outdated answer to an error. It gives up after
// about a second and ignores errors. No two callers give up at the same time.
func (f *feed) refresh(ctx context.Context) {
	later := time.Duration(f.hub.refreshes.Add(1)%1000) * time.Microsecond
	ctx, cancel := context.WithTimeout(ctx, time.Second+later)
	defer cancel()
	f.catchUp(ctx)
}

// maxParallel is the largest number of streams that a list or an idle check opens concurrently.
const maxParallel = 32

// parallel returns how many streams an idle check opens concurrently. On a store that is not
// shared, opening a log keeps a core of this machine busy, so an idle check uses at most half of
// the cores.
func (w *sweeper) parallel() int {
	if !w.h.shared {
		return max(1, min(maxParallel, runtime.GOMAXPROCS(0)/2))
	}
	return maxParallel
}

// objects returns the stream object of each stream of a page, and for each stream an error or nil.
// On a shared store, each object may need a round trip to the servers, so they are read
// concurrently.
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
