package jetstream

import (
	"context"
	"errors"
	"fmt"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
)

// opening is a log that is being opened. Nothing else happens on the log until the method start is
// called.
type opening struct{ *log }

// restore reads the log and passes its headers to Judge.Restore.
func (o opening) restore(ctx context.Context) error {
	for try := 1; ; try++ {
		err := o.readAll(ctx)
		if !errors.Is(err, errTrimmed) || try == maxRestores {
			return err
		}
		o.index, o.last, o.position = index{}, 0, 0
	}
}

// maxRestores is how often restore tries to read a log that other nodes trim at the same time.
const maxRestores = 20

// errTrimmed says that another node trimmed and purged the log while this node was reading it.
var errTrimmed = errors.New("the last note was purged")

func (o opening) readAll(ctx context.Context) error {
	all, err := o.shard.Records(ctx, o.subject, 1, 0)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		o.index.floor = all[0].At
	} else if err := o.shard.intact(ctx); err != nil {
		return err
	}
	o.index.entries = make([]entry, 0, len(all))
	var note []byte
	var trimmed *record.Record
	for i, m := range all {
		o.last, o.position = m.At, m.Position
		switch m.Kind {
		case record.Dropped:
			return engine.ErrDropped
		case record.Trim:
			trimmed, o.index.note = &all[i], m.At
			o.index.low = max(o.index.low, m.Seq)
		case engine.Batch, engine.GapClosed:
			if !o.index.insert(m) {
				return fmt.Errorf("%w: sequence %d occurs twice in the log", engine.ErrDamaged, m.Seq)
			}
		}
	}
	if err := beginsWhole(all, trimmed); err != nil {
		return err
	}
	o.index.cut(o.index.low)
	if trimmed != nil {
		note, err = o.payload(ctx, trimmed)
		if errors.Is(err, engine.ErrNotFound) {
			return errTrimmed
		}
		if err != nil {
			return fmt.Errorf("read the note: %w", err)
		}
		if note == nil {
			note = []byte{}
		}
	}
	return o.judge.Restore(note, o.index.restored(all, keysSince(o.judge)))
}

// beginsWhole returns ErrDamaged if the first records of a log are missing although no trim removed
// them: then an operator or another program purged them. The parameter trimmed is the last trim of
// the log, or nil.
func beginsWhole(all []record.Record, trimmed *record.Record) error {
	oldest := uint64(1)
	if trimmed != nil {
		oldest = uint64(trimmed.First)
	}
	// Trims of earlier versions do not say which record is the oldest one that is needed.
	if len(all) > 0 && oldest > 0 && all[0].Position > oldest {
		return fmt.Errorf("%w: the log begins with record %d, but records from %d on must be there", engine.ErrDamaged, all[0].Position, oldest)
	}
	return nil
}

// resume continues where an earlier log stopped, if the judge has kept its state (engine.Returning):
// it takes over the index of the closed log, and reports to the judge what other nodes wrote since.
// So it reads nothing that the judge knows already, however long the log is.
//
// It does what a refresh does for an open log that has not heard of other nodes for long. It returns
// false, and has not called the judge, if the log must be read as a whole: there is no earlier log,
// or other nodes trimmed and purged records that this node has not read, or messages were removed.
func (o opening) resume(ctx context.Context) (bool, error) {
	judge, ok := o.judge.(engine.Returning)
	if !ok {
		return false, nil
	}
	left, ok := judge.Left().(*log)
	if !ok || !left.mayResume(o.log) {
		return false, nil
	}
	// The last record of a closed log does not change, so it can be read without the lock.
	newest, err := o.shard.Last(ctx, o.subject)
	last := newest.Seq
	if err != nil || last < left.last {
		return false, err
	}
	var found []record.Record
	if last > left.last {
		found, err = o.shard.Records(ctx, o.subject, left.last+1, left.position)
		if errors.Is(err, engine.ErrDamaged) {
			return false, nil // restore reads everything and decides whether the log is damaged
		}
		if err != nil {
			return false, err
		}
	}
	o.last, o.position = left.last, left.position
	if len(found) > 0 && found[len(found)-1].Kind == record.Dropped {
		return false, engine.ErrDropped
	}
	if last > left.last && o.contiguous(found) != nil {
		o.last, o.position = 0, 0
		return false, nil
	}
	o.inherit(left)
	note := o.index.note
	judge.Resume(o.log)
	for _, m := range found {
		if err := o.apply(m); err != nil {
			return false, err
		}
	}
	if o.index.note != note {
		o.purgeLater() // the process that trimmed the log may have crashed before it purged the log
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
	l.index, left.index, left.resumable = left.index, index{}, false
}
