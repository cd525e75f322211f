package jetstream

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

// store writes a group of records directly after w.l.last, the last message that was known when the
// judge (engine.Judge, the rules of the stream) decided about the group. It sends the group again
// until a server answers. All attempts expect the same last message, so at most one of them can
// succeed.
//
// The results:
//
//	others != nil   Other records came first. The group was not stored and never will be. But if
//	                g.doubt is set, the group may have been stored and then purged.
//	ErrFull,        not stored, and never will be
//	wire.ErrRefused
//	ErrUnavailable  unknown; happens only when Close has stopped waiting
//	ErrClosed       unknown; the connection was closed
func (w *writer) store(g *group) (others []record.Record, err error) {
	for doubt := false; ; {
		js, err := w.send(g)
		switch {
		case err == nil:
			g.Stored(js)
			return nil, nil
		case errors.Is(err, wire.ErrInProcess):
			// Another write is in flight, perhaps an earlier attempt to store this group. If the
			// subscription (package line) delivers that write, the outcome is known. Otherwise the
			// loop sends the group again.
			if found := w.awaitOthers(g, wire.Retry/4); found != nil {
				return w.settled(g, found, doubt), nil
			}
		case errors.Is(err, wire.ErrConflict), doubt && (errors.Is(err, wire.ErrRefused) || errors.Is(err, engine.ErrFull)):
			found, unread := w.readOthers(g)
			switch {
			case unread != nil:
				return nil, unread
			case len(found) > 0:
				return w.settled(g, found, doubt), nil
			case !errors.Is(err, wire.ErrConflict):
				return nil, err
			}
			// The server reported a conflict, but no other record exists: it is no longer the
			// leader, so its answer does not count.
			w.l.e.client.Pause(w.l.e.client.Life, wire.Retry/4)
		case errors.Is(err, wire.ErrRefused), errors.Is(err, engine.ErrFull):
			return nil, err
		case w.l.e.client.Life.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
			return nil, engine.ErrClosed
		default:
			doubt = true
			w.l.e.counts.resends.Add(1)
			w.l.e.opts.Logger.Debug("write got no answer and will be repeated", "log", w.l.id, "error", err)
			// The line may deliver the messages of this attempt. Then the outcome is known.
			if found := w.awaitOthers(g, wire.Retry/4); found != nil {
				return w.settled(g, found, doubt), nil
			}
		}
		select {
		case <-w.l.giveUp:
			return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
		default:
		}
	}
}

// settled compares the records that were found after w.l.last with a group. If they are the records
// of the group, an earlier attempt was stored: settled copies its JetStream sequences to the group
// and returns nil. Otherwise settled returns the found records, which came first.
func (w *writer) settled(g *group, found []record.Record, doubt bool) []record.Record {
	if len(found) < len(g.Records) || found[0].Group != g.ID {
		g.doubt = doubt
		return found
	}
	for i := range g.Records {
		g.Records[i].At = found[i].At
	}
	return nil
}

// send makes one attempt to store a group.
func (w *writer) send(g *group) (uint64, error) {
	if len(g.Messages) > 1 {
		w.l.shard.batches <- struct{}{}
		defer func() { <-w.l.shard.batches }()
	}
	return w.l.e.client.Publish(w.l.e.client.Life, g.Messages)
}

// readOthers returns the records after the last one that the judge knows. Another node wrote them,
// or they are the records of this group. readOthers also makes this node follow the log, which
// means that the line delivers new records as they are stored. If the log was already followed, the
// line will deliver the records soon. So readOthers waits for them, and asks the servers only if
// they do not arrive. It returns the group's own records only when all of them can be read.
func (w *writer) readOthers(g *group) ([]record.Record, error) {
	w.l.mu.Lock()
	followed := w.l.attendance.followed && w.l.shard.Live()
	w.l.keepFollowing(w.l.e.opts.rivalry)
	w.l.mu.Unlock()
	if w.l.join(w.l.e.client.Life); followed {
		if found := w.awaitOthers(g, w.l.e.opts.hearing); found != nil {
			return found, nil
		}
	}
	for w.l.e.client.Life.Err() == nil {
		found, err := w.l.readMissing(w.l.e.client.Life)
		if err != nil || !w.holdsPart(g, found) {
			return found, err
		}
		select {
		case <-w.l.giveUp:
			return nil, fmt.Errorf("%w: only a part of a write can be read", engine.ErrUnavailable)
		default:
		}
		w.l.e.client.Pause(w.l.e.client.Life, wire.Retry/8)
	}
	return nil, engine.ErrClosed
}

// holdsPart reports whether the found records are the beginning of a group and the rest of the
// group is missing. JetStream stores a group as a whole, but a replica adds its messages one by one
// and answers reads in between. So the rest follows. If the found records counted as those of
// another node, this node would store the group a second time.
func (w *writer) holdsPart(g *group, found []record.Record) bool {
	return len(found) > 0 && len(found) < len(g.Records) && found[0].Group == g.ID && found[0].Position == w.l.position+1
}

// awaitOthers waits for the line to deliver the records after w.l.position. It returns nil if they do
// not arrive in time. It returns the group's own records only when all of them have arrived.
func (w *writer) awaitOthers(g *group, within time.Duration) []record.Record {
	late := time.NewTimer(w.l.e.client.Apart(within))
	defer late.Stop()
	for {
		w.l.mu.Lock()
		var found []record.Record
		for _, m := range w.l.inbox {
			if next := w.l.position + uint64(len(found)) + 1; m.Position == next || m.Kind == record.Dropped {
				found = append(found, m)
			}
		}
		w.l.mu.Unlock()
		if len(found) > 0 && (found[0].Group != g.ID || len(found) >= len(g.Records)) {
			return found
		}
		select {
		case <-w.l.heard:
		case <-late.C:
			return nil
		case <-w.l.e.client.Life.Done():
			return nil
		}
	}
}

// rewind makes the judge forget its decisions about a group that was not stored. It returns cause,
// the reason why the group was not stored. If the judge cannot forget its decisions, rewind makes
// the log unusable (fail) and returns the error of fail.
func (w *writer) rewind(g *group, cause error) error {
	if g.admitted == 0 {
		return cause
	}
	if w.l.follower != nil {
		w.l.follower.Rewind()
		return cause
	}
	if cause == nil {
		cause = errAlone
	}
	return w.l.fail(cause)
}

// commit adds a stored group to the index, calls Judge.Commit, and then answers the callers.
func (w *writer) commit(g *group, begun time.Time) {
	trimmed := false
	w.l.mu.Lock()
	// The write succeeded, so the judge knows every earlier record.
	w.l.attendance.sure, w.l.attendance.wrote = begun, begun
	for _, m := range g.Records {
		w.l.pass(m)
		trimmed = trimmed || m.Kind == record.Trim
	}
	w.l.mu.Unlock()
	if g.admitted > 0 {
		w.l.judge.Commit(g.admitted)
	}
	answer(g.requests, nil)
	if trimmed {
		w.l.purgeLater()
	}
}
