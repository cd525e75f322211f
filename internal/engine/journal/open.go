package journal

import (
	"context"
	"fmt"

	"weir/internal/engine"
	"weir/internal/engine/journal/index"
)

// fewItems is the largest number of entries of a log that OpenNow opens.
const fewItems = 64

// Open implements engine.Engine.
func (j *Journal) Open(ctx context.Context, id engine.LogID, judge engine.Judge) (engine.Log, error) {
	return j.open(ctx, j.logOf(id), judge, true)
}

// OpenNow implements engine.Flusher.
func (j *Journal) OpenNow(id engine.LogID, judge engine.Judge) engine.Log {
	l := j.logOf(id)
	if l == nil || !l.isAtHand(judge) {
		return nil
	}
	h, err := j.open(context.Background(), l, judge, false)
	if err != nil {
		return nil
	}
	return h
}

// open opens a log. If its document is being deleted, open waits for the outcome of the deletion, or
// returns engine.ErrDropped if the parameter wait is false.
func (j *Journal) open(ctx context.Context, l *log, judge engine.Judge, wait bool) (engine.Log, error) {
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
	h := &handle{log: l, judge: judge, staged: l.lastMark().low}
	l.mu.Unlock()
	// Appends need an attached judge, so no entry is added before the judge is attached. By then,
	// restore has shown every entry to the judge. If the log was open before, Close has waited for
	// all ops of the earlier handle, so the mark includes all trims.
	note, err := l.readNote(ctx)
	if err == nil {
		err = l.restore(ctx, note, judge)
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
	l, ok := j.store.logs.Lookup(id)
	if ok && l == nil {
		l = &log{j: j, id: id}
		j.store.logs.Set(id, l)
	}
	return l
}

// isAtHand reports whether the log can be opened in a few microseconds, without reading the disk.
func (l *log) isAtHand(judge engine.Judge) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := l.index.Len()
	if n > fewItems || l.mark != nil && l.mark.note == nil {
		return false
	}
	r := index.HeadReader{Since: keysSince(judge)}
	_, missing := r.Fill(&l.index, 0, make([]index.Head, 0, n))
	return !missing
}
