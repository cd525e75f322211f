package hub

import (
	"context"

	"weir"
	"weir/internal/stream"
)

// This file publishes without waiting, for a caller that serves many clients in one goroutine. The
// engine reports the outcome of a batch by a callback, so a batch that waits for the disk occupies
// no goroutine. In rare cases a publish must wait for something else, or read the disk. Only then
// does the hub start a goroutine for it.

// Outcome receives the outcome of a publish that Propose began.
type Outcome interface {
	// Published is called once, from any goroutine, with the results that Publish would return. It
	// must not block.
	Published(weir.Ack, error)
}

// Foresee does the same as Decide, but never waits. It returns true if the body is needed: call
// Propose or Publish. It returns an error if the publish is refused. If it returns neither, only
// Decide can tell. As after Decide, the caller must call Release in any case.
func (s *Stream) Foresee(p *Publish) (needsBody bool, err error) {
	if !p.Chosen && p.Key == "" && !s.ended.Load() {
		err = s.refusesBatches()
		return err == nil, err
	}
	f := s.acquireOpen()
	if f == nil {
		return false, nil
	}
	defer f.release()
	p.enter(f)
	return p.needsBody(f)
}

// Propose does the same as Publish, but returns at once. It reports the result to the parameter to,
// perhaps before it returns. The caller must not use p until then.
func (s *Stream) Propose(p *Publish, to Outcome) {
	f := s.acquireOpen()
	if f == nil || p.Contiguous && (p.ordered == nil || !p.ordered.isReady(p.Seq)) {
		if f != nil {
			f.release()
		}
		go func() { to.Published(s.Publish(context.Background(), p)) }()
		return
	}
	p.begin(f, to)
}

// begin proposes a batch to the log, and reports the result to the parameter to. It then releases the
// feed, which the caller has acquired. Batches that a goroutine begins one after the other are decided
// on in this order.
func (p *Publish) begin(f *feed, to Outcome) {
	b := newProposal(f, p.rules(int64(len(p.Batch.Payload))), p, false)
	if b.feed, b.of, b.to = f, p, to; b.done == nil {
		b.done = b.completed
	}
	f.log.Propose(&b.entry, b.done)
}

// completed reports the outcome of a proposal. The engine calls it with the outcome of the entry.
func (p *proposal) completed(err error) {
	f, of, to := p.feed, p.of, p.to
	switch {
	case err != nil:
		of.report(f, to, weir.Ack{}, p.failed(context.Background(), f, err))
	case p.verdict.Outcome == stream.Stored || p.verdict.Outcome == stream.Refused && !f.hub.shared:
		ack, err := p.conclude(context.Background(), f, of)
		of.report(f, to, ack, err)
	default: // conclude may read the disk or ask other nodes
		go func() {
			ack, err := p.conclude(context.Background(), f, of)
			of.report(f, to, ack, err)
		}()
	}
}

// report ends the use of the feed and reports the outcome of a publish.
func (p *Publish) report(f *feed, to Outcome, ack weir.Ack, err error) {
	f.release()
	if p.settled = err == nil; p.settled {
		lifeOf(f.s).published()
	}
	to.Published(ack, err)
}

// acquireOpen does the same as acquire if the stream's log is open. Otherwise it returns nil.
func (s *Stream) acquireOpen() *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feed
	if s.deleted || f == nil || s.hub.shared && f.isBehind() {
		return nil
	}
	f.users++
	return f
}

// isReady reports whether a request for seq need not wait for the request with the sequence below.
func (o *order) isReady(seq weir.Seq) bool {
	if o.isNext(seq) {
		return true
	}
	_, queued := o.look(seq - 1)
	return queued
}
