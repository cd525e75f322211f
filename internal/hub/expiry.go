package hub

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// This file ends the lifetime of a stream, which lifetime.go measures.

// appendLongest is longer than the time from the decision about a batch of another node to its
// acknowledgement, including the difference between the clocks of the two nodes.
const appendLongest = 20 * time.Second

// seemsLapsed guesses whether a deleted stream was deleted because its lifetime had ended. The hub
// guesses only if it has missed the deletion, which has the reason, and finds a new stream with the
// same id. On a shared store, the node that deleted the stream may not have known of the last uses on
// this node. So there it is enough if the lifetime has ended according to the uses in the document.
func seemsLapsed(s *Stream) bool {
	now, l := s.hub.now(), lifeOf(s)
	if l == nil {
		return false
	}
	end := l.until
	if s.TTLSeconds > 0 {
		end = min(end, weir.Time(l.saved.Load()).Add(time.Duration(s.TTLSeconds)*time.Second))
	}
	return l.isOver(now) || s.hub.shared && end <= now
}

// lapse deletes the stream with this id if its lifetime has ended, and returns the stream. When
// lapse returns, the catalog may still have the stream, because the sweeper may be deleting it at
// the same time. lapse returns nil if there is no such stream, or if its lifetime has not ended.
func (h *Hub) lapse(ctx context.Context, id weir.StreamID) (*Stream, error) {
	s := h.catalog.lookup(id)
	if s == nil || !s.expired() {
		return nil, nil
	}
	l := lifeOf(s)
	if l == nil {
		return s, nil
	}
	if err := l.lapse(ctx); err != nil && !isNotFound(err) {
		return nil, err
	}
	if l.end() > h.now() {
		return nil, nil
	}
	return s, nil
}

// lapse deletes the stream if its lifetime has ended. First it looks for a use that this node does not
// know of, in two places. The log may hold a batch of another node, or of this node before a restart,
// whose time was not yet stored in the document. The document may hold a use on another node that this
// node has not heard of. If there is such a use, the stream lives on.
func (l *life) lapse(ctx context.Context) error {
	if l.until > l.s.hub.now() && l.used.Load() != dead {
		c, err := l.s.Cursor(ctx)
		if err != nil && l.used.Load() != dead && !(l.s.hub.shared && hinders(err)) {
			return err
		}
		l.touch(c.UpdatedAt)
	}
	l.proven.Store(true)
	if !l.isOver(l.s.hub.now()) {
		return nil
	}
	if l.s.hub.shared {
		if over, err := l.finish(ctx); err != nil || !over {
			return err
		}
	}
	return l.s.deleteIf(ctx, l.isDue)
}

// isDue reports whether the lifetime has ended according to the settings in the document.
func (l *life) isDue(spec *Spec) bool {
	l.touch(spec.usedAt)
	raise(&l.saved, spec.usedAt)
	return l.isOver(l.s.hub.now())
}

// finish stores an entry that ends the log because the lifetime of the stream has ended. It returns
// false if the lifetime has not ended. Only streams of a shared store need such an entry.
//
// The entry cannot be stored if there is no space, if the clock of this node is wrong, if another node
// runs a version that could not read it, or if the log is damaged. Then finish fails at first.
// It returns true without the entry once no node can acknowledge a batch any more that it admitted
// before the end of the lifetime, even if that node knew of a later use.
func (l *life) finish(ctx context.Context) (bool, error) {
	f, err := l.s.acquire(ctx)
	if isNotFound(err) {
		return true, nil
	}
	if err == nil {
		defer f.release()
		var doc engine.Document
		var spec Spec
		if doc, err = l.s.hub.engine.Get(ctx, documentKey(l.s.ID)); err == nil {
			spec, _, err = readDocument(doc)
		}
		if err == nil && doc.Created == l.s.log && !l.isDue(&spec) {
			return false, nil
		}
	}
	if err == nil {
		err = f.log.Append(ctx, &engine.Entry{Header: engine.Header{Kind: engine.GapClosed, Tag: lapsedTag}, Proposer: &closing{life: l}})
	}
	switch {
	case errors.Is(err, engine.ErrDropped) || errors.Is(err, engine.ErrNotFound):
		return true, nil
	case hinders(err):
		if l.end().Add(l.saveEvery()+appendLongest) > l.s.hub.now() {
			return false, changeError(l.s.ID, fmt.Errorf("%w: cannot end the lifetime of the stream: %v", engine.ErrUnavailable, err))
		}
		return true, nil
	case err != nil:
		return false, changeError(l.s.ID, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return stream.Ended(f.state) && l.isOver(l.s.hub.now()), nil // a stream that was closed before needs no entry
}

// hinders reports whether a stream is deleted, after a while, without the entry that ends its log. A log
// that only newer versions can read is left to a node with such a version.
func hinders(err error) bool {
	return slices.ContainsFunc([]error{engine.ErrFull, engine.ErrClock, engine.ErrOlder, engine.ErrDamaged}, func(h error) bool { return errors.Is(err, h) })
}

// lapsedTag is the tag of the entry that ends a log because the lifetime of its stream has ended.
const lapsedTag = "expired"

// endsLife reports whether an entry ended the log because the lifetime of the stream has ended.
func endsLife(h *engine.Header) bool { return h.Flags&engine.Ends != 0 && h.Tag == lapsedTag }

// watchEnd returns the same entries. A batch among them is a use of the stream. If one of them ended the
// log because the lifetime of the stream has ended, the lifetime is over for good.
func watchEnd(s *Stream, entries iter.Seq[*engine.Header]) iter.Seq[*engine.Header] {
	if !s.limited() {
		return entries
	}
	return func(yield func(*engine.Header) bool) {
		for h := range entries {
			if l := lifeOf(s); l != nil && h.Kind == engine.Batch {
				l.touch(h.Time)
			}
			if endsLife(h) {
				die(s)
			}
			if !yield(h) {
				return
			}
		}
	}
}

// die records that the lifetime of the stream has ended for good.
func die(s *Stream) {
	if l := lifeOf(s); l != nil {
		l.used.Store(dead)
	}
}

// lifeEnded reports whether the lifetime of the stream has ended for good. This includes a stream with a
// limited lifetime that was deleted.
func lifeEnded(s *Stream) bool {
	if !s.limited() {
		return false
	}
	l := lifeOf(s)
	return l == nil || l.used.Load() == dead
}

// isGone reports whether the stream was deleted, or will be because its lifetime has ended. Called with
// f.mu held.
func isGone(f *feed) bool { return f.dropped || lifeEnded(f.s) }
