package hub

import (
	"context"
	"sync"
	"time"

	"weir"
	"weir/internal/engine"
)

// lookEvery is how often a node looks at a stream of a shared store that nobody uses here: the node that would have given its
// expired batches up may be gone.
const lookEvery = time.Hour

// share begins to follow what other nodes do with the store, if there are others.
func (h *Hub) share() {
	if s, ok := h.engine.(engine.Shared); ok {
		h.shared = s
		s.Watch(h.documentChanged)
	}
}

// documentChanged follows a document: a stream that was made or deleted, here or on another node.
func (h *Hub) documentChanged(c engine.Change) {
	id, ok := StreamOf(c.Key)
	if !ok {
		return
	}
	if c.Deleted {
		h.catalog.deleted(id, c.Created)
	}
	h.catalog.mu.RLock()
	known := h.catalog.byID[id]
	h.catalog.mu.RUnlock()
	if known != nil && (c.Deleted || known.log != c.Created) {
		known.mu.Lock()
		known.deleted = true
		known.mu.Unlock()
		h.catalog.remove(known)
		known = nil
	}
	if c.Deleted || known != nil {
		return
	}
	s, err := h.streamOf(c.Document)
	if err != nil {
		h.opts.Logger.Error("a stream of another node cannot be read", "key", c.Key, "error", err)
		return
	}
	h.catalog.add(s)
	h.sweeper.later(s, h.now().Add(lookEvery))
}

// Lead has the hub ask whether this node does what only one of those should do that share the store; before that it does.
func (h *Hub) Lead(first func() bool) { h.first.Store(&first) }

func (h *Hub) leads() bool {
	first := h.first.Load()
	return first == nil || (*first)()
}

// lookAround looks at streams of a shared store that nobody uses here, beside everything else: each look asks servers that may
// take their time. One node does it for all.
func (w *sweeper) lookAround() {
	if !w.looking.CompareAndSwap(false, true) {
		return
	}
	due := w.due()
	if len(due) == 0 || !w.h.leads() {
		for _, s := range due {
			w.later(s, w.h.now().Add(lookEvery))
		}
		w.looking.Store(false)
		return
	}
	w.h.work.Go(func() {
		defer w.looking.Store(false)
		var all sync.WaitGroup
		slots := make(chan struct{}, lookers)
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

// catchUp returns when the catalog has every stream that anybody was told of. Without other nodes it always has.
func (h *Hub) catchUp(ctx context.Context) error {
	if h.shared == nil {
		return nil
	}
	return h.shared.CatchUp(ctx)
}

// Find is Stream, which first asks whether another node made the stream just now: nobody is refused on old news.
func (h *Hub) Find(ctx context.Context, id weir.StreamID) (*Stream, error) {
	s, err := h.Stream(id)
	if err == nil || h.shared == nil {
		return s, err
	}
	if err := h.catchUp(ctx); err != nil {
		return nil, outcome(id, err)
	}
	return h.Stream(id)
}

// catchUp returns when the feed knows everything that anybody was told of. Without other nodes it always does.
func (f *feed) catchUp(ctx context.Context) error {
	if f.hub.shared == nil {
		return nil
	}
	if log, ok := f.log.(engine.SharedLog); ok {
		return outcome(f.s.ID, log.CatchUp(ctx))
	}
	return nil
}

// refresh is catchUp for somebody who takes what is known where others cannot be reached.
func (f *feed) refresh(ctx context.Context) {
	if f.hub.shared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	f.catchUp(ctx)
}

// attend has the feed hear of what other nodes publish at once, until leave.
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

// lookers is how many streams of a list are looked at at once.
const lookers = 32

// objects are the stream objects of a page, each with what went wrong. Where every look asks other nodes they are looked at
// beside each other.
func (h *Hub) objects(ctx context.Context, page []*Stream) ([]weir.Stream, []error) {
	list, faults := make([]weir.Stream, len(page)), make([]error, len(page))
	if h.shared == nil {
		for i, s := range page {
			list[i], faults[i] = s.Object(ctx)
		}
		return list, faults
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, lookers)
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
