package jetstream

import (
	"context"
	"errors"
	"fmt"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

// errAlone means that several processes write to a log, but the judge of this process cannot handle
// entries of other processes.
var errAlone = errors.New("another process also appends to this log, but the judge of this process is not a Follower")

// fail ends the use of a log because the judge's state differs from the stored log. The log can be
// opened again.
func (l *log) fail(why error) error {
	l.mu.Lock()
	if l.over == nil && errors.Is(why, engine.ErrClosed) {
		l.over = engine.ErrClosed
	}
	if l.over != nil {
		defer l.mu.Unlock()
		return l.over
	}
	l.over = fmt.Errorf("%w: log %d: %w", engine.ErrBehind, l.id, why)
	l.mu.Unlock()
	l.e.opts.Logger.Error("log failed and must be reopened", "log", l.id, "error", why)
	if l.follower != nil {
		l.follower.Behind()
	}
	return l.over
}

// pass adds a record to the index and moves l.position past it. Only the worker (the goroutine of
// the log) calls it, with l.mu held.
func (l *log) pass(m record.Record) {
	switch {
	case m.IsEntry():
		if !l.index.insert(m) {
			panic(fmt.Sprintf("jetstream: sequence %d of log %d was admitted twice", m.Seq, l.id))
		}
	case m.Kind == record.Trim:
		l.index.note = m.At
		l.index.cut(m.Seq)
	}
	l.last, l.position = m.At, m.Position
}

// follow applies the records that package line has delivered to the inbox.
func (l *log) follow() {
	for {
		l.mu.Lock()
		if len(l.inbox) == 0 || l.over != nil {
			l.inbox = nil
			l.mu.Unlock()
			return
		}
		m := l.inbox[0]
		l.inbox = l.inbox[1:]
		l.mu.Unlock()
		if err := l.applyAll([]record.Record{m}); err != nil {
			return
		}
	}
}

// applyAll applies records of other nodes in order and skips those already known. If a position is
// missing, it reads the missing records from the servers.
func (l *log) applyAll(all []record.Record) error {
	for _, m := range all {
		if m.Kind != record.Dropped && m.Position > l.position+1 {
			missing, err := l.readMissing(l.e.client.Life)
			if err == nil {
				err = l.contiguous(missing)
			}
			if err != nil {
				return l.fail(err)
			}
			return l.applyAll(missing)
		}
		if err := l.apply(m); err != nil {
			return l.fail(err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// contiguous returns nil if the first of the records comes directly after the last record that the
// judge knows.
func (l *log) contiguous(found []record.Record) error {
	if len(found) == 0 || found[0].Kind != record.Dropped && found[0].Position != l.position+1 {
		return errors.New("other nodes trimmed records that this node had not read")
	}
	return nil
}

// readMissing reads the records after the last message that the judge knows. It returns ErrDamaged
// if that message was removed and no later one exists, and ErrTooNew if a newer version wrote one of
// the records. If no server answers, it tries again, because no other work on the log is possible
// until it succeeds.
func (l *log) readMissing(ctx context.Context) ([]record.Record, error) {
	for {
		found, err := l.shard.RecordsAfter(ctx, l.subject, l.last)
		if err == nil || ctx.Err() != nil || errors.Is(err, engine.ErrDamaged) || errors.Is(err, engine.ErrTooNew) || errors.Is(err, engine.ErrClosed) {
			return found, err
		}
		select {
		case <-l.giveUp:
			return nil, err
		default:
		}
		l.e.client.Pause(ctx, wire.Retry/4)
	}
}

// apply adds one record of another node to the index and reports it to the judge.
func (l *log) apply(m record.Record) error {
	if m.Kind == record.Dropped {
		l.endedElsewhere()
		return nil
	}
	if m.Position <= l.position {
		return nil
	}
	if l.follower == nil {
		return errAlone
	}
	if m.Kind == record.Trim {
		// Trimmed must be called before the index is cut, because the judge may still visit the
		// entries that the cut removes.
		l.follower.Trimmed(m.Seq)
	}
	l.turns.overtaken(m.At)
	l.mu.Lock()
	if l.attendance.followed && l.turns.rival.Sub(l.attendance.wrote) < l.e.opts.rivalry {
		l.keepFollowing(l.e.opts.rivalry)
	}
	twice := m.IsEntry() && l.index.has(m.Seq)
	if !twice {
		l.pass(m)
	}
	l.mu.Unlock()
	if twice {
		return fmt.Errorf("%w: sequence %d occurs twice in the log", engine.ErrDamaged, m.Seq)
	}
	if m.IsEntry() {
		l.follower.Follow(m.Header)
	}
	return nil
}
