// Package memory is an engine that stores everything in memory. It keeps the promises of package
// engine until the process ends, and then loses all data. It is meant for tests of packages that
// use an engine. It is also the simplest implementation: no goroutine, no queue, two locks per log.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"weir/internal/engine"
)

// Engine is one store. Locks are taken in the order log.order, Engine.mu, log.mu.
type Engine struct {
	mu       sync.Mutex
	closed   bool
	revision engine.Revision // the last revision that was assigned
	docs     map[string]engine.Document
	logs     map[engine.LogID]*log // one log per document, even if the log is not open
	watchers []func(engine.Change) // called while mu is held
}

var _ engine.Engine = (*Engine)(nil)

// New returns an empty store.
func New() *Engine {
	return &Engine{docs: map[string]engine.Document{}, logs: map[engine.LogID]*log{}}
}

// lock locks e.mu, unless the store is closed or ctx has ended. The caller must unlock it if lock
// returns no error.
func (e *Engine) lock(ctx context.Context) error {
	e.mu.Lock()
	err := ctx.Err()
	if e.closed {
		err = engine.ErrClosed
	}
	if err != nil {
		e.mu.Unlock()
	}
	return err
}

// put stores a document under the next revision. This revision is also the id of the log if the
// document is new.
func (e *Engine) put(doc engine.Document) (engine.Document, error) {
	if len(doc.Key) > engine.MaxKey || len(doc.Value) > engine.MaxValue {
		return engine.Document{}, fmt.Errorf("document %.20q: value of %d bytes (at most %d) under a key of %d bytes (at most %d)", doc.Key, len(doc.Value), engine.MaxValue, len(doc.Key), engine.MaxKey)
	}
	e.revision++
	doc.Revision = e.revision
	if doc.Created == 0 {
		doc.Created = engine.LogID(doc.Revision)
		e.logs[doc.Created] = new(log)
	}
	e.docs[doc.Key] = doc
	e.tell(engine.Change{Document: doc})
	return doc, nil
}

// tell passes a change to the watchers. The caller holds mu, so that the watchers receive changes
// in order.
func (e *Engine) tell(c engine.Change) {
	for _, visit := range e.watchers {
		visit(c)
	}
}

// Create stores a document under a key that has none.
func (e *Engine) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	if err := e.lock(ctx); err != nil {
		return engine.Document{}, err
	}
	defer e.mu.Unlock()
	if _, ok := e.docs[key]; ok {
		return engine.Document{}, engine.ErrExists
	}
	return e.put(engine.Document{Key: key, Value: value})
}

// CreateLater creates a document and reports the outcome before it returns.
func (e *Engine) CreateLater(key string, value []byte, done func(error)) {
	_, err := e.Create(context.Background(), key, value)
	done(err)
}

// Update replaces the value of a document.
func (e *Engine) Update(ctx context.Context, key string, value []byte, rev engine.Revision) (engine.Document, error) {
	if err := e.lock(ctx); err != nil {
		return engine.Document{}, err
	}
	defer e.mu.Unlock()
	doc, ok := e.docs[key]
	switch {
	case !ok:
		return engine.Document{}, engine.ErrNotFound
	case doc.Revision != rev:
		return engine.Document{}, engine.ErrConflict
	}
	doc.Value = value
	return e.put(doc)
}

// Get returns a document.
func (e *Engine) Get(ctx context.Context, key string) (engine.Document, error) {
	if err := e.lock(ctx); err != nil {
		return engine.Document{}, err
	}
	defer e.mu.Unlock()
	doc, ok := e.docs[key]
	if !ok {
		return engine.Document{}, engine.ErrNotFound
	}
	return doc, nil
}

// Delete removes a document and its log.
func (e *Engine) Delete(ctx context.Context, key string, rev engine.Revision) error {
	return e.remove(ctx, key, rev, false)
}

// Expire implements engine.Documents.
func (e *Engine) Expire(ctx context.Context, key string, rev engine.Revision) error {
	return e.remove(ctx, key, rev, true)
}

func (e *Engine) remove(ctx context.Context, key string, rev engine.Revision, expired bool) error {
	for {
		doc, err := e.Get(ctx, key)
		if err != nil {
			return err
		}
		if done, err := e.delete(ctx, doc, rev, expired); done || err != nil {
			return err
		}
	}
}

// delete removes the document that doc describes. It returns false if the key now has a different
// document; the caller then tries again. It holds the lock log.order during the whole call.
// Otherwise an append could succeed after the document is deleted and before its log is dropped.
func (e *Engine) delete(ctx context.Context, doc engine.Document, rev engine.Revision, expired bool) (done bool, err error) {
	e.mu.Lock()
	l := e.logs[doc.Created]
	e.mu.Unlock()
	if l == nil {
		return false, nil
	}
	l.order.Lock()
	defer l.order.Unlock()
	if err := e.lock(ctx); err != nil {
		return false, err
	}
	current := e.docs[doc.Key]
	done = current.Created == doc.Created
	if done && rev != 0 && rev != current.Revision {
		done, err = false, engine.ErrConflict
	}
	var open *handle
	if done {
		e.revision++
		delete(e.docs, doc.Key)
		delete(e.logs, doc.Created)
		open = l.drop()
		gone := engine.Document{Key: doc.Key, Created: doc.Created, Revision: e.revision}
		e.tell(engine.Change{Document: gone, Deleted: true, Expired: expired})
	}
	e.mu.Unlock()
	if open != nil {
		open.judge.Dropped()
	}
	return done, err
}

// List returns documents in order of keys.
func (e *Engine) List(ctx context.Context, prefix, afterKey string, limit int) ([]engine.Document, error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	var docs []engine.Document
	for _, key := range slices.Sorted(maps.Keys(e.docs)) {
		if len(docs) < limit && key > afterKey && strings.HasPrefix(key, prefix) {
			docs = append(docs, e.docs[key])
		}
	}
	return docs, nil
}

// Watch calls the function visit for all documents that the prefixes select, and later for every
// change of them. For each change, visit runs before Create, Update or Delete returns.
func (e *Engine) Watch(ctx context.Context, of engine.Prefixes, visit func(engine.Change)) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.mu.Unlock()
	visit = of.Only(visit)
	for _, doc := range slices.SortedFunc(maps.Values(e.docs), func(a, b engine.Document) int { return cmp.Compare(a.Revision, b.Revision) }) {
		visit(engine.Change{Document: doc})
	}
	e.watchers = append(e.watchers, visit)
	return nil
}

// CatchUp waits for nothing, because no other process changes this store.
func (e *Engine) CatchUp(ctx context.Context) error {
	err := e.lock(ctx)
	if err == nil {
		e.mu.Unlock()
	}
	return err
}

// Shared returns false, because no other process can read the memory of this one.
func (e *Engine) Shared() bool { return false }

// Open attaches a judge to a log.
func (e *Engine) Open(ctx context.Context, id engine.LogID, judge engine.Judge) (engine.Log, error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	l := e.logs[id]
	e.mu.Unlock()
	if l == nil {
		return nil, engine.ErrDropped
	}
	return l.attach(id, judge)
}

// Held counts headers, payloads and the note (the bytes that the last Trim stored).
func (e *Engine) Held(id engine.LogID) (bytes int64) {
	e.mu.Lock()
	l := e.logs[id]
	e.mu.Unlock()
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held()
}

// held returns how many bytes of memory the log uses. The caller must hold l.mu.
func (l *log) held() (bytes int64) {
	for i := range l.entries {
		bytes += int64(unsafe.Sizeof(l.entries[i])) + int64(len(l.entries[i].Payload))
	}
	return bytes + int64(len(l.note))
}

// Outline implements engine.Engine.
func (e *Engine) Outline(id engine.LogID) (o engine.Outline, known bool) {
	e.mu.Lock()
	l := e.logs[id]
	e.mu.Unlock()
	if l == nil {
		return o, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o.Low, o.Memory = l.low, l.held()
	for i := range l.entries {
		h := &l.entries[i]
		if o.Last, o.Newest = h.Seq, h.Time; i == 0 {
			o.First, o.Oldest = h.Seq, h.Time
		}
		o.Entries++
		o.Ended = h.Flags&engine.Ends != 0
		o.Oldest = min(o.Oldest, h.Time)
		if h.Kind == engine.Batch && h.Flags&engine.Lost == 0 {
			o.Batches++
			o.Bytes += int64(len(h.Payload))
		}
	}
	return o, true
}

// Status returns Ready until the engine is closed.
func (e *Engine) Status() engine.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.Status{State: engine.Closed, Reason: engine.ErrClosed}
	}
	return engine.Status{}
}

// Close waits for the appends in progress and closes the store.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	logs := slices.Collect(maps.Values(e.logs))
	e.mu.Unlock()
	for _, l := range logs {
		l.close()
	}
	return nil
}
