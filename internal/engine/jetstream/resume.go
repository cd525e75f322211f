package jetstream

import (
	"context"
	"errors"

	"weir/internal/engine"
)

// resume continues where an earlier log stopped, if the judge has kept its state (engine.Returning):
// it takes over the index of the closed log, and reports to the judge what other nodes wrote since.
// So it reads nothing that the judge knows already, however long the log is.
//
// It does what a refresh does for an open log that has not heard of other nodes for long. It returns
// false, and has not called the judge, if the log must be read as a whole: there is no earlier log,
// or other nodes trimmed and purged records that this node has not read, or messages were removed.
func (l *log) resume(ctx context.Context) (bool, error) {
	judge, ok := l.judge.(engine.Returning)
	if !ok {
		return false, nil
	}
	left, ok := judge.Left().(*log)
	if !ok || !left.mayResume(l) {
		return false, nil
	}
	// The last record of a closed log does not change, so it can be read without the lock.
	newest, err := l.shard.last(ctx, l.subject)
	last := newest.Seq
	if err != nil || last < left.last {
		return false, err
	}
	var found []message
	if last > left.last {
		found, err = l.shard.readHeaders(ctx, l.subject, left.last+1)
		if errors.Is(err, engine.ErrDamaged) {
			return false, nil // restore reads everything and decides whether the log is damaged
		}
		if err != nil {
			return false, err
		}
	}
	l.last, l.position = left.last, left.position
	if len(found) > 0 && found[len(found)-1].kind == dropped {
		return false, engine.ErrDropped
	}
	if last > left.last && l.contiguous(found) != nil {
		l.last, l.position = 0, 0
		return false, nil
	}
	l.inherit(left)
	note := l.note
	judge.Resume(l)
	for _, m := range found {
		if err := l.apply(m); err != nil {
			return false, err
		}
	}
	if l.note != note {
		l.purgeLater() // the process that trimmed the log may have crashed before it purged the log
	}
	return true, nil
}

// mayResume reports whether the log next can continue where l stopped.
func (l *log) mayResume(next *log) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resumable && l.e == next.e && l.id == next.id
}

// inherit takes over the index of a closed log. A purge of the closed log may still be running.
func (l *log) inherit(left *log) {
	left.mu.Lock()
	defer left.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index, l.removed, l.low, l.note, l.floor = left.index, left.removed, left.low, left.note, left.floor
	left.resumable, left.index = false, nil
}
