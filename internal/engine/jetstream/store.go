package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

// store writes a group of records directly after l.last, the last message that was known when the
// judge (engine.Judge, the rules of the stream) decided about the group. It sends the group again
// until a server answers. All attempts expect the same last message, so at most one of them can
// succeed.
//
// The results:
//
//	others != nil   Other records came first. The group was not stored and never will be. But if
//	                g.doubt is set, the group may have been stored and then purged.
//	ErrFull,        not stored, and never will be
//	errRefused
//	ErrUnavailable  unknown; happens only when Close has stopped waiting
//	ErrClosed       unknown; the connection was closed
func (l *log) store(g *group) (others []message, err error) {
	for doubt := false; ; {
		js, err := l.send(g)
		switch {
		case err == nil:
			for i := range g.records {
				// The messages of an atomic batch have consecutive sequences.
				g.records[i].js = js - uint64(len(g.msgs)-1-g.in[i])
			}
			return nil, nil
		case errors.Is(err, errInProcess):
			// Another write is in flight, perhaps an earlier attempt to store this group. If the
			// subscription (type line) delivers that write, the outcome is known. Otherwise the
			// loop sends the group again.
			if found := l.awaitOthers(g, retry/4); found != nil {
				return l.settled(g, found, doubt), nil
			}
		case errors.Is(err, errConflict), doubt && (errors.Is(err, errRefused) || errors.Is(err, engine.ErrFull)):
			found, unread := l.readOthers(g)
			switch {
			case unread != nil:
				return nil, unread
			case len(found) > 0:
				return l.settled(g, found, doubt), nil
			case !errors.Is(err, errConflict):
				return nil, err
			}
			// The server reported a conflict, but no other record exists: it is no longer the
			// leader, so its answer does not count.
			l.e.pause(l.e.ctx, retry/4)
		case errors.Is(err, errRefused), errors.Is(err, engine.ErrFull):
			return nil, err
		case l.e.ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
			return nil, engine.ErrClosed
		default:
			doubt = true
			l.e.counts.resends.Add(1)
			l.e.opts.Logger.Debug("write got no answer and will be repeated", "log", l.id, "error", err)
			// The line may deliver the messages of this attempt. Then the outcome is known.
			if found := l.awaitOthers(g, retry/4); found != nil {
				return l.settled(g, found, doubt), nil
			}
		}
		select {
		case <-l.giveUp:
			return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
		default:
		}
	}
}

// settled compares the records that were found after l.last with a group. If they are the records
// of the group, an earlier attempt was stored: settled copies its JetStream sequences to the group
// and returns nil. Otherwise settled returns the found records, which came first.
func (l *log) settled(g *group, found []message, doubt bool) []message {
	if len(found) < len(g.records) || found[0].group != g.id {
		g.doubt = doubt
		return found
	}
	for i := range g.records {
		g.records[i].js = found[i].js
	}
	return nil
}

// send makes one attempt to store a group.
func (l *log) send(g *group) (uint64, error) {
	if len(g.msgs) > 1 {
		l.shard.batches <- struct{}{}
		defer func() { <-l.shard.batches }()
	}
	return l.e.publish(l.e.ctx, g.msgs)
}

// readOthers returns the records after the last one that the judge knows. Another node wrote them,
// or they are the records of this group. readOthers also makes this node follow the log, which
// means that the line delivers new records as they are stored. If the log was already followed, the
// line will deliver the records soon. So readOthers waits for them, and asks the servers only if
// they do not arrive. It returns the group's own records only when all of them can be read.
func (l *log) readOthers(g *group) ([]message, error) {
	l.mu.Lock()
	followed := l.attendance.followed && l.shard.live.Load()
	l.keepFollowing(l.e.opts.rivalry)
	l.mu.Unlock()
	if l.join(l.e.ctx); followed {
		if found := l.awaitOthers(g, l.e.opts.hearing); found != nil {
			return found, nil
		}
	}
	for l.e.ctx.Err() == nil {
		found, err := l.readMissing(l.e.ctx)
		if err != nil || !l.holdsPart(g, found) {
			return found, err
		}
		select {
		case <-l.giveUp:
			return nil, fmt.Errorf("%w: only a part of a write can be read", engine.ErrUnavailable)
		default:
		}
		l.e.pause(l.e.ctx, retry/8)
	}
	return nil, engine.ErrClosed
}

// holdsPart reports whether the found records are the beginning of a group and the rest of the
// group is missing. JetStream stores a group as a whole, but a replica adds its messages one by one
// and answers reads in between. So the rest follows. If the found records counted as those of
// another node, this node would store the group a second time.
func (l *log) holdsPart(g *group, found []message) bool {
	return len(found) > 0 && len(found) < len(g.records) && found[0].group == g.id && found[0].position == l.position+1
}

// awaitOthers waits for the line to deliver the records after l.position. It returns nil if they do
// not arrive in time. It returns the group's own records only when all of them have arrived.
func (l *log) awaitOthers(g *group, within time.Duration) []message {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		l.mu.Lock()
		var found []message
		for _, m := range l.inbox {
			if next := l.position + uint64(len(found)) + 1; m.position == next || m.kind == dropped {
				found = append(found, m)
			}
		}
		l.mu.Unlock()
		if len(found) > 0 && (found[0].group != g.id || len(found) >= len(g.records)) {
			return found
		}
		select {
		case <-l.heard:
		case <-late.C:
			return nil
		case <-l.e.ctx.Done():
			return nil
		}
	}
}

// errAlone means that several processes write to a log, but the judge of this process cannot handle
// entries of other processes.
var errAlone = errors.New("another process appends to this log, but its judge is not a Follower")

// rewind makes the judge forget its decisions about a group that was not stored. It returns cause,
// the reason why the group was not stored. If the judge cannot forget its decisions, rewind makes
// the log unusable (fail) and returns the error of fail.
func (l *log) rewind(g *group, cause error) error {
	if g.admitted == 0 {
		return cause
	}
	if l.follower != nil {
		l.follower.Rewind()
		return cause
	}
	if cause == nil {
		cause = errAlone
	}
	return l.fail(cause)
}

// fail ends the use of a log because the judge's state differs from the stored log. The log can be
// opened again.
func (l *log) fail(why error) error {
	l.mu.Lock()
	if l.over != nil {
		defer l.mu.Unlock()
		return l.over
	}
	if errors.Is(why, engine.ErrClosed) {
		defer l.mu.Unlock()
		l.over = engine.ErrClosed
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

// commit adds a stored group to the index, calls Judge.Commit, and then answers the callers.
func (l *log) commit(g *group, begun time.Time) {
	trimmed := false
	l.mu.Lock()
	// The write succeeded, so the judge knows every earlier record.
	l.attendance.sure, l.attendance.wrote = begun, begun
	for _, m := range g.records {
		l.pass(m)
		trimmed = trimmed || m.kind == trim
	}
	l.mu.Unlock()
	if g.admitted > 0 {
		l.judge.Commit(g.admitted)
	}
	answer(g.requests, nil)
	if trimmed {
		l.purgeLater()
	}
}

// pass adds a record to the index and moves l.position past it. Only the worker (the goroutine of
// the log) calls it, with l.mu held.
func (l *log) pass(m message) {
	switch {
	case m.isEntry():
		if !l.insert(m) {
			panic(fmt.Sprintf("jetstream: sequence %d of log %d was admitted twice", m.Seq, l.id))
		}
	case m.kind == trim:
		l.note = m.js
		l.cut(m.Seq)
	}
	l.last, l.position = m.js, m.position
}

// follow applies the records in the inbox, which the line has delivered.
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
		if err := l.applyAll([]message{m}); err != nil {
			return
		}
	}
}

// applyAll applies records of other nodes in order and skips those already known. If a position is
// missing, it reads the missing records from the servers.
func (l *log) applyAll(all []message) error {
	for _, m := range all {
		if m.kind != dropped && m.position > l.position+1 {
			missing, err := l.readMissing(l.e.ctx)
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
func (l *log) contiguous(found []message) error {
	if len(found) == 0 || found[0].kind != dropped && found[0].position != l.position+1 {
		return errors.New("other nodes trimmed records that this node had not read")
	}
	return nil
}

// readMissing reads the records after the last message that the judge knows. It returns ErrDamaged
// if that message was removed and no later one exists, and ErrTooNew if a newer version wrote one of
// the records. If no server answers, it tries again, because no other work on the log is possible
// until it succeeds.
func (l *log) readMissing(ctx context.Context) ([]message, error) {
	for {
		found, err := l.shard.recordsAfter(ctx, l.subject, l.last)
		if err == nil || ctx.Err() != nil || errors.Is(err, engine.ErrDamaged) || errors.Is(err, engine.ErrTooNew) || errors.Is(err, engine.ErrClosed) {
			return found, err
		}
		select {
		case <-l.giveUp:
			return nil, err
		default:
		}
		l.e.pause(ctx, retry/4)
	}
}

// apply adds one record of another node to the index and reports it to the judge.
func (l *log) apply(m message) error {
	if m.kind == dropped {
		l.drop()
		return nil
	}
	if m.position <= l.position {
		return nil
	}
	if l.follower == nil {
		return errAlone
	}
	if m.kind == trim {
		// Trimmed must be called before the index is cut, because the judge may still visit the
		// entries that the cut removes.
		l.follower.Trimmed(m.Seq)
	}
	l.rival = time.Now()
	l.mu.Lock()
	if l.attendance.followed && l.rival.Sub(l.attendance.wrote) < l.e.opts.rivalry {
		l.keepFollowing(l.e.opts.rivalry)
	}
	_, twice := l.find(m.Seq)
	if twice = twice && m.isEntry(); !twice {
		l.pass(m)
	}
	l.mu.Unlock()
	if twice {
		return fmt.Errorf("%w: sequence %d occurs twice in the log", engine.ErrDamaged, m.Seq)
	}
	if m.isEntry() {
		l.follower.Follow(m.Header)
	}
	return nil
}

// dropLog ends the log of a deleted document. If that fails, it tries again in the background.
func (e *Engine) dropLog(id engine.LogID) error {
	failed := e.endLog(e.ctx, id)
	if failed == nil {
		return nil
	}
	e.background(func() {
		for err := failed; err != nil; err = e.endLog(e.ctx, id) {
			e.opts.Logger.Warn("could not end the log of a deleted document, will retry", "log", id, "error", err)
			select {
			case <-e.ending:
				return
			case <-time.After(e.apart(dropAgain)):
			}
		}
	})
	return failed
}

// dropAgain is the interval between attempts to end a log.
const dropAgain = time.Second

// endLog ends the log of a deleted document for all nodes: it stores an end marker as the last
// message. Every write is conditional on the last message that its node knows. A write that was
// decided before the marker expects a different last message, so the servers refuse it.
func (e *Engine) endLog(ctx context.Context, id engine.LogID) error {
	if l := e.opened(id); l != nil {
		if gone := l.drop(); gone != nil {
			late := time.NewTimer(e.opts.Patience)
			defer late.Stop()
			select {
			case <-gone:
			case <-late.C:
				return fmt.Errorf("end log %d: %w: a write to it got no answer", id, engine.ErrUnavailable)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	s := e.shard(id)
	last := record{kind: dropped, parts: 1}
	m := &nats.Msg{Subject: s.subject(id), Header: nats.Header{field: {encode(last)}}}
	m.Header.Set(jetstream.MsgTTLHeader, markerLife)
	at, err := withRetry(ctx, e, func(ctx context.Context) (uint64, error) { return e.publish(ctx, []*nats.Msg{m}) })
	if err != nil {
		return fmt.Errorf("end log %d: %w", id, err)
	}
	return e.purge(ctx, s.stream, s.subject(id), at)
}
