package hub

import (
	"context"
	"fmt"
	"sync"

	"weir"
	"weir/internal/engine"
)

// load reads the catalog from the store, and makes the engine report all later changes.
func (h *Hub) load(ctx context.Context) error {
	l := &loader{h: h, batch: newReadings(), full: make(chan []reading, 1), free: make(chan []reading, 1), done: make(chan struct{})}
	l.free <- newReadings()
	go l.run()
	err := h.engine.Watch(ctx, engine.Prefixes{documents}, l.visit)
	l.end()
	if err != nil {
		return fmt.Errorf("read the catalog of streams: %w", err)
	}
	h.catalog.mu.RLock()
	defer h.catalog.mu.RUnlock()
	return h.catalog.unreadable
}

// loader receives the documents of all streams. A store may have a million streams, so while the hub
// opens, the goroutine of the engine only parses the documents, and another one puts the streams
// into the catalog. Both keep the order of the documents.
type loader struct {
	h     *Hub
	mu    sync.Mutex
	over  bool           // the hub is open
	batch []reading      // documents for the method run
	full  chan []reading // passes a batch to the method run
	free  chan []reading // passes it back
	done  chan struct{}  // closed when the method run has ended
}

// reading is a changed document that was parsed.
type reading struct {
	change  engine.Change // without its value
	id      weir.StreamID
	spec    Spec
	created weir.Time
	err     error // the document cannot be read
}

func newReadings() []reading { return make([]reading, 0, 256) }

// parse parses a document. It returns false if the document does not describe a stream.
func parse(c engine.Change) (r reading, ok bool) {
	if r.id, ok = StreamOf(c.Key); !ok {
		return r, false
	}
	if !c.Deleted {
		r.spec, r.created, r.err = readDocument(c.Document)
	}
	r.change = c
	r.change.Value = nil
	return r, true
}

// visit is called by the engine, for one document at a time.
func (l *loader) visit(c engine.Change) {
	r, ok := parse(c)
	if !ok {
		return
	}
	l.mu.Lock()
	over := l.over
	if !over {
		if l.batch = append(l.batch, r); len(l.batch) == cap(l.batch) {
			l.full <- l.batch
			l.batch = <-l.free
		}
	}
	l.mu.Unlock()
	if over {
		l.h.documentChanged(&r)
	}
}

// run puts streams into the catalog until the method end is called.
func (l *loader) run() {
	defer close(l.done)
	for batch := range l.full {
		for i := range batch {
			l.h.documentChanged(&batch[i])
		}
		clear(batch)
		l.free <- batch[:0]
	}
}

// end waits until all streams are in the catalog. From then on, visit changes the catalog before it
// returns.
func (l *loader) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full <- l.batch
	<-l.free
	close(l.full)
	<-l.done
	l.batch, l.over = nil, true
	l.h.catalog.loaded.Store(true)
}
