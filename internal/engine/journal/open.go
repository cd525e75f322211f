package journal

import (
	"context"
	"fmt"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/index"
)

// fewItems is the largest number of entries of a log that OpenNow opens.
const fewItems = 64

// Open implements engine.Engine.
func (j *Journal) Open(ctx context.Context, id engine.LogID, judge engine.Judge) (engine.Log, error) {
	return j.open(ctx, j.logOf(id), judge, keysSince(judge), true)
}

// OpenNow implements engine.Flusher.
func (j *Journal) OpenNow(id engine.LogID, judge engine.Judge) engine.Log {
	if !j.store.mu.TryLock() { // a reader of all documents may hold the lock for long
		return nil
	}
	l := j.store.logOf(id)
	j.store.mu.Unlock()
	since := keysSince(judge)
	if l == nil || !l.isAtHand(since) {
		return nil
	}
	h, err := j.open(context.Background(), l, judge, since, false)
	if err != nil {
		return nil
	}
	return h
}

// open opens a log. The judge needs the keys of entries from the time since on. If the log's
// document is being deleted, open waits for the outcome of the deletion, or returns
// engine.ErrDropped if the parameter wait is false.
func (j *Journal) open(ctx context.Context, l *log, judge engine.Judge, since weir.Time, wait bool) (engine.Log, error) {
	if j.closing.Load() {
		return nil, engine.ErrClosed
	}
	if l == nil {
		return nil, engine.ErrDropped
	}
	l.mu.Lock()
	if l.open {
		l.mu.Unlock()
		panic(fmt.Sprintf("log %d is already open", l.id))
	}
	l.open = true
	h := &handle{log: l, j: j, judge: judge, staged: l.lastMark().low}
	l.mu.Unlock()
	// Appends need an attached judge, so no entry is added before the judge is attached. By then,
	// restore has shown every entry to the judge. If the log was open before, Close has waited for
	// all ops of the earlier handle, so the mark includes all trims.
	note, err := h.readNote(ctx)
	if err == nil {
		err = h.restore(ctx, note, judge, since)
	}
	if err == nil && !l.attached.CompareAndSwap(nil, h) {
		if err = engine.ErrDropped; wait {
			err = h.awaitDeletion()
		}
	}
	if err != nil {
		l.mu.Lock()
		l.open = false
		l.mu.Unlock()
		return nil, err
	}
	return h, nil
}

// awaitDeletion waits until the deletion of the document has succeeded or failed. If it succeeded,
// awaitDeletion returns engine.ErrDropped. If it could not be written, awaitDeletion attaches the
// handle.
func (h *handle) awaitDeletion() error {
	o := &detachOp{h, make(chan error, 1)} // detaches nothing, but is answered after the deletion
	h.j.do(o)
	if err := <-o.done; err != nil {
		return err
	}
	if !h.attached.CompareAndSwap(nil, h) {
		return engine.ErrDropped
	}
	return nil
}

// logOf returns the log with this id, or nil if no document owns such a log. It creates the
// in-memory log on first use.
func (j *Journal) logOf(id engine.LogID) *log {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	return j.store.logOf(id)
}

// logOf is the same as Journal.logOf. Called with s.mu held.
func (s *store) logOf(id engine.LogID) *log {
	l, ok := s.logs.Lookup(id)
	if ok && l == nil {
		l = &log{id: id}
		s.logs.Set(id, l)
	}
	return l
}

// isAtHand reports whether the log can be opened in a few microseconds, without reading the disk.
func (l *log) isAtHand(since weir.Time) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := l.index.Len()
	if n > fewItems || l.mark != nil && l.mark.note == nil {
		return false
	}
	r := index.HeadReader{Since: since}
	_, missing := r.Fill(&l.index, 0, make([]index.Head, 0, n))
	return !missing
}
