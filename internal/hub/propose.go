package hub

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// This file publishes without waiting, for a caller that serves many clients in one goroutine. The
// engine reports the outcome of a batch by a callback, so a batch that waits for the disk occupies
// no goroutine. In rare cases a publish must wait for something else, or read the disk. Only then
// does the hub start a goroutine for it.

// Outcome receives the outcome of a publish that Propose began.
type Outcome interface {
	// Published is called once, from any goroutine, with the results that Publish would return, or
	// with a *Panic. It must not block.
	Published(weir.Ack, error)
}

// settler is an Outcome with a goroutine of its own. The engine's goroutine then does as little as
// possible: it calls Settle, and Finish does the rest, including the call of Published. Settle must
// make Finish run once, must not block, and may be called from any goroutine.
type settler interface {
	Outcome
	Settle(f interface{ Finish() })
}

// Foresee does the same as Decide, but never waits. It returns true if the body is needed: call
// Propose or Publish. It returns an error if the publish is refused. If it returns neither, only
// Decide can tell. As after Decide, the caller must call Release in any case.
func (s *Stream) Foresee(p *Publish) (needsBody bool, err error) {
	if !p.Chosen && p.Key == "" && !s.ended.Load() {
		err = s.refusesBatches()
		return err == nil, err
	}
	f := s.acquireNow()
	if f == nil {
		return false, nil
	}
	defer f.release()
	p.enter(f)
	return p.needsBody(f)
}

// Propose does the same as Publish, but returns at once. It calls outcome.Published with the
// result, perhaps before it returns. Until that call, the caller must not use p. After one or more
// calls of Propose, the caller must call Flush.
func (s *Stream) Propose(p *Publish, outcome Outcome) {
	f := s.acquireNow()
	if f == nil || p.Contiguous && (p.ordered == nil || !p.ordered.isReady(p.Seq)) {
		if f != nil {
			f.release()
		}
		go func() {
			outcome.Published(caught(func() (weir.Ack, error) { return s.Publish(context.Background(), p) }))
		}()
		return
	}
	begin(f, p, outcome, s.hub.flusher != nil)
}

// Flush makes the engine start to store the batches that Propose has passed to it. It may wait for a
// quick disk; see engine.Flusher.
func Flush(h *Hub) {
	if h.flusher != nil {
		h.flusher.Flush()
	}
}

// begin proposes a batch to the log. The caller has acquired the feed. Once the outcome is known, the
// feed is released and outcome.Published is called. If a goroutine calls begin for several batches,
// the log decides on them in the order of the calls. If the parameter deferred is true, Flush must
// follow.
func begin(f *feed, p *Publish, outcome Outcome, deferred bool) {
	b := newProposal(f, p.rules(int64(len(p.Batch.Payload))), p, false)
	if b.feed, b.of, b.to = f, p, outcome; b.done == nil {
		b.done = b.completed
	}
	b.settle, _ = outcome.(settler)
	b.entry.Deferred = deferred
	f.log.Propose(&b.entry, b.done)
}

// completed takes the outcome of the entry from the engine, and makes Finish report the outcome of
// the publish.
func (p *proposal) completed(err error) {
	outcome := p.verdict.Outcome
	switch p.failure = err; {
	case p.feed.hub.shared && (err != nil || outcome != stream.Stored), err == nil && outcome == stream.Duplicate:
		go p.Finish() // what follows may read the disk or ask other nodes
	case p.settle != nil:
		p.settle.Settle(p)
	default:
		p.Finish()
	}
}

// Finish reports the outcome of the publish. The outcome of the entry is in p.failure.
func (p *proposal) Finish() {
	f, of, to := p.feed, p.of, p.to
	ack, err := caught(func() (weir.Ack, error) {
		if p.failure != nil {
			return weir.Ack{}, p.failed(context.Background(), f, p.failure)
		}
		return p.conclude(context.Background(), f, of)
	})
	of.report(f, to, ack, err)
}

// Panic is the error of a publish that ended with a panic. The batch may have been stored.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// caught calls a function that publishes. If the function panics, the error is a *Panic. So the
// caller can end the publish in the usual way, and nothing that the publish has used stays in use.
func caught(publish func() (weir.Ack, error)) (ack weir.Ack, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{v, debug.Stack()}
		}
	}()
	return publish()
}

// report ends the use of the feed and reports the outcome of a publish. If ending the use panics, the
// outcome is reported nevertheless.
func (p *Publish) report(f *feed, to Outcome, ack weir.Ack, err error) {
	defer to.Published(ack, err)
	f.release()
	if p.settled = err == nil; p.settled {
		lifeOf(f.s).published()
	}
}

// acquireNow does the same as acquire, but returns nil if that would wait, or fail.
func (s *Stream) acquireNow() *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.traffic.open()
	switch {
	case s.deleted || f != nil && s.hub.shared && f.isBehind():
		return nil
	case f != nil:
		f.users++
		return f
	case s.hub.flusher == nil || s.traffic.inTransition():
		return nil
	}
	f, _ = enter(s, func(f *feed) (engine.Log, error) {
		if log := s.hub.flusher.OpenNow(s.log, f); log != nil {
			return log, nil
		}
		return nil, errNotNow
	})
	return f
}

// errNotNow says that opening a log would take time.
var errNotNow = errors.New("the log cannot be opened without waiting")

// isReady reports whether a request for seq need not wait for the request with the sequence below.
func (o *order) isReady(seq weir.Seq) bool {
	if o.isNext(seq) {
		return true
	}
	_, queued := o.look(seq - 1)
	return queued
}
