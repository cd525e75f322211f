package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// Publish is a request to store a batch.
type Publish struct {
	Chosen     bool       // the client chose Seq
	Seq        weir.Seq   // the chosen sequence; only if Chosen
	Contiguous bool       // only if Chosen: refuse the batch if it would open a gap (D38)
	Publisher  string     // only if Chosen: name to keep with the batch; may be empty (D38)
	Key        string     // idempotency key; only if not Chosen
	Writer     *Writer    // only if not Chosen: the writer of the batch; nil if none is named
	Ends       bool       // only if not Chosen: close the stream together with this batch (D37)
	Batch      weir.Batch // Seq and Time are ignored

	Known WriterStanding // set by Publish if there is a Writer: what the stream knows about it
	Free  bool           // set by Publish: the batch was stored, and the hub no longer uses its payload

	ordered *order   // the order (order.go) that contains this publish; only if Contiguous
	held    *Stream  // the stream that keeps Seq open (gaps.go) until Release
	way     *traffic // the traffic of the stream that holds Seq open
	settled bool     // the batch was stored, by this publish or an earlier one
}

// Writer and WriterStanding are types of package stream.
type (
	Writer         = stream.Writer
	WriterStanding = stream.Standing
)

// The ways in which the numbers of a writer can disagree with the stream.
const (
	Fenced   = stream.Fenced
	BadStart = stream.BadStart
	Skipped  = stream.Skipped
	Disorder = stream.Disorder
)

// proposal is a publish while its entry is in the log's queue. The entry carries the proposal to
// Admit, and Admit writes the verdict into the proposal.
type proposal struct {
	rules   stream.Publish
	probe   bool           // only decide, do not store: the body has not been read yet
	verdict stream.Verdict // set by Admit
	cursor  weir.Seq       // cursor of the stream after the batch was stored; set by Admit
	kept    bool           // the payload is in the tail of the stream; set by Admit
	order   *order         // only for a contiguous publish: the order to notify when the entry is in the log's queue
	entry   engine.Entry

	// Only for Propose (propose.go).
	feed    *feed
	of      *Publish
	to      Outcome
	settle  settler     // the same as to; nil if to is no settler
	failure error       // the outcome of the entry
	done    func(error) // the method value completed; kept, so that Propose need not allocate it
}

// Placed implements engine.Placeable.
func (p *proposal) Placed() {
	if p.order != nil {
		p.order.queue(p.rules.Seq)
	}
}

var proposals = sync.Pool{New: func() any { return new(proposal) }} // in a proposal from the pool, all fields are zero, except done and entry.Room

// recycle returns a proposal to the pool. The engine must not own its entry any more.
func (p *proposal) recycle() {
	*p = proposal{done: p.done, entry: engine.Entry{Room: p.entry.Room}}
	proposals.Put(p)
}

// Decide answers a publish without its body if possible (D19). It returns an acknowledgement if the
// publish is a duplicate, or a refusal: InvalidSequence, SequenceTooFarAhead, SequenceNotNext,
// StreamClosed, StreamNotFound or StorageUnavailable. If it returns neither, the body is needed;
// call Publish.
// Until the caller calls Release, the sequence of the publish stays open, however long the body
// takes to arrive (D4).
func (s *Stream) Decide(ctx context.Context, p *Publish) (*weir.Ack, error) {
	if !p.Chosen && p.Key == "" && !s.ended.Load() {
		return nil, s.refusesBatches() // the batch gets the next sequence, so no sequence can be refused
	}
	f, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer f.release()
	p.enter(f)
	if next, follows := p.inLine(f); next || follows {
		if next {
			err = s.refusesBatches()
		}
		return nil, err
	}
	if body, err := p.needsBody(f); body || err != nil {
		return nil, err
	}
	return s.decide(ctx, f, p)
}

// inLine reports whether the sequence of p is the next one, or whether p is contiguous and follows
// a batch whose request is in progress. Nearly all publishes with a chosen sequence are of these
// two kinds. Both need their body, and inLine makes the stream hold their sequence, as preview
// does. preview would find the same, but its verdicts take so much stack that Go would have to copy
// the stack of each HTTP/2 request to a larger one.
func (p *Publish) inLine(f *feed) (next, follows bool) {
	if !p.Chosen || p.Seq > weir.MaxSeq {
		return false, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	above := f.ahead.Cursor().Cursor + 1
	next = p.Seq == above
	follows = p.Contiguous && p.Seq > above && p.Seq <= f.state.Cursor().Cursor+weir.MaxAhead && f.way.order.has(p.Seq-1)
	if f.dropped || stream.Ended(f.ahead) || !next && !follows {
		return false, false
	}
	p.hold(f)
	return next, follows
}

// hold makes the stream keep the chosen sequence open until Release. A publish may be decided on
// several times, but holds its sequence only once. Called with f.mu held.
func (p *Publish) hold(f *feed) {
	if p.held == nil {
		f.way.holds.add(p.Seq)
		p.held, p.way = f.s, f.way
	}
}

// needsBody reports whether a publish needs its body: nearly all do. If it returns false, decide has
// to look closer.
func (p *Publish) needsBody(f *feed) (bool, error) {
	v, _, cursor, err := p.preview(f, p.rules(-1))
	switch {
	case err != nil:
		return false, err
	case v.Outcome == stream.Stored && v.Header.Late:
		return true, nil
	case v.Outcome == stream.Stored:
		return true, f.s.refusesBatches()
	}
	return p.early(v, cursor) && f.way.order.has(p.Seq-1), nil // Publish waits for the batch below
}

// decide does the work of Decide for a publish that may be a duplicate or refused.
func (s *Stream) decide(ctx context.Context, f *feed, p *Publish) (*weir.Ack, error) {
	if err := f.catchUp(ctx); err != nil { // another node may have stored more
		f.writeFailed(err)
		return nil, err
	}
	rules := p.rules(-1)
	v, seen, cursor, err := p.preview(f, rules)
	if err == nil && p.early(v, cursor) {
		if p.awaitArrival(ctx, f); f.way.order.has(p.Seq - 1) {
			return nil, nil
		}
		if err := f.catchUp(ctx); err != nil {
			f.writeFailed(err)
			return nil, err
		}
		v, seen, cursor, err = p.preview(f, rules)
	}
	switch {
	case err != nil:
		return nil, err
	case v.Outcome == stream.Stored && v.Header.Late:
		return nil, nil
	case v.Outcome == stream.Stored:
		return nil, s.refusesBatches()
	case v.Outcome == stream.Refused && seen.Outcome == stream.Refused:
		return nil, seen.Err // the reason of v may be an entry that is not durable
	case v.Outcome == stream.Duplicate && seen.Outcome == stream.Duplicate:
		return s.duplicate(ctx, f, v.Header, cursor)
	}
	// The two states disagree: the answer depends on an entry that is not durable yet. A probe (an
	// entry that is decided on, but never stored) goes through the log behind that entry, so its
	// answer is durable too (D5).
	ack, err := f.propose(ctx, rules, &Publish{}, true)
	if err == nil && ack.Duplicate {
		return &ack, nil
	}
	if err == nil { // the entry that the states disagreed about was not stored after all
		_, _, _, err = p.preview(f, rules)
	}
	return nil, err
}

// preview returns two verdicts: that of f.ahead, which includes entries that are not durable yet,
// and that of the durable state. A client may only see an answer on which both agree. If p may be
// stored, now or after the batches below it, preview makes the stream hold the chosen sequence,
// which keeps the sequence open until Release.
func (p *Publish) preview(f *feed, rules stream.Publish) (v, seen stream.Verdict, cursor weir.Seq, err error) {
	now := f.hub.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if isGone(f) {
		return v, v, 0, notFound(f.s.ID)
	}
	f.evict(now)
	v = f.ahead.Decide(rules, now)
	seen, cursor = v, f.state.Cursor().Cursor
	if v.Outcome != stream.Stored {
		seen = f.durableVerdict(rules, v, now)
	}
	if p.Chosen && (v.Outcome == stream.Stored || p.early(v, cursor)) {
		p.hold(f)
		if v.Header.Late {
			f.updateHeld(now)
		}
	}
	return v, seen, cursor, nil
}

// durableVerdict returns the verdict of the durable state, which does not know idempotency keys. If
// f.ahead found the key of an earlier batch, the answer is durable once that batch is durable. So
// durableVerdict asks the durable state about the sequence of that batch. Called with f.mu held.
func (f *feed) durableVerdict(p stream.Publish, ahead stream.Verdict, now weir.Time) stream.Verdict {
	if ahead.Outcome == stream.Duplicate {
		if ahead.Header.Seq < f.state.Low() {
			return ahead // the batch is evicted, and only durable batches are evicted
		}
		p = stream.Publish{Chosen: true, Seq: ahead.Header.Seq, Size: -1}
	}
	return f.state.Decide(p, now)
}

// Publish stores the batch and returns its acknowledgement once it is durable (D5). It returns the
// same refusals as Decide, and also PayloadTooLarge. The hub takes ownership of the payload. If ctx
// ends first, the batch may still be stored.
func (s *Stream) Publish(ctx context.Context, p *Publish) (weir.Ack, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return weir.Ack{}, err
	}
	defer f.release()
	if p.Contiguous {
		if p.ordered == nil { // Decide was not called
			p.enter(f)
			defer p.leave()
		}
		p.awaitTurn(ctx, f)
	}
	ack, err := f.propose(ctx, p.rules(int64(len(p.Batch.Payload))), p, false)
	if p.settled = err == nil; p.settled {
		lifeOf(s).published()
	}
	return ack, err
}

// rules returns the publish in the form that package stream decides on. The parameter size is -1 if
// the body has not been read.
func (p *Publish) rules(size int64) stream.Publish {
	return stream.Publish{Chosen: p.Chosen, Seq: p.Seq, Contiguous: p.Contiguous, Key: p.Key, Size: size, Ends: p.Ends, Writer: p.Writer}
}

// propose sends a batch through the log and returns the acknowledgement or the refusal.
func (f *feed) propose(ctx context.Context, rules stream.Publish, b *Publish, probe bool) (weir.Ack, error) {
	p, err := f.append(ctx, rules, b, probe)
	if err != nil {
		return weir.Ack{}, err
	}
	return p.conclude(ctx, f, b)
}

// conclude turns the verdict on a batch into an acknowledgement or a refusal, and recycles the
// proposal. The caller has waited until the batch, or everything that the refusal depends on, is
// durable. On a shared store, a refused batch is proposed once more.
func (p *proposal) conclude(ctx context.Context, f *feed, b *Publish) (weir.Ack, error) {
	if p.verdict.Outcome != stream.Stored && f.hub.shared {
		// A refusal may be based on an outdated state, so conclude catches up with the other nodes
		// and proposes the batch again. A duplicate stays a duplicate, but its acknowledgement
		// needs the current cursor.
		err := f.catchUp(ctx)
		if rules, probe := p.rules, p.probe; err == nil && p.verdict.Outcome == stream.Refused {
			p.recycle()
			p, err = f.append(ctx, rules, b, probe)
		}
		if err != nil {
			return weir.Ack{}, err
		}
	}
	defer p.recycle()
	b.Known = p.verdict.Writer
	switch p.verdict.Outcome {
	case stream.Stored:
		b.Free = !p.kept && !p.probe && !f.hub.shared
		return weir.Ack{StreamID: f.s.ID, Seq: p.verdict.Header.Seq, Accepted: b.Batch.Events, Cursor: p.cursor, Publisher: b.Publisher}, nil
	case stream.Duplicate:
		f.mu.Lock()
		cursor := f.state.Cursor().Cursor
		f.mu.Unlock()
		if p.rules.Writer != nil && p.verdict.Header.Key == (weir.KeyDigest{}) {
			return weir.Ack{StreamID: f.s.ID, Cursor: cursor, Duplicate: true}, nil
		}
		ack, err := f.s.duplicate(ctx, f, p.verdict.Header, cursor)
		if err != nil {
			return weir.Ack{}, err
		}
		return *ack, nil
	}
	return weir.Ack{}, p.verdict.Err
}

// append proposes a batch to the log. It waits until the batch, or everything that a refusal depends
// on, is durable. The proposal that it returns has the verdict of Admit; the caller must recycle it.
func (f *feed) append(ctx context.Context, rules stream.Publish, of *Publish, probe bool) (*proposal, error) {
	p := newProposal(f, rules, of, probe)
	if err := f.log.Append(ctx, &p.entry); err != nil {
		return nil, p.failed(ctx, f, err)
	}
	return p, nil
}

// newProposal returns a proposal with the entry of a batch. It sets the fields one by one, because
// a composite literal would double the stack that it needs (see inLine).
func newProposal(f *feed, rules stream.Publish, of *Publish, probe bool) *proposal {
	p := proposals.Get().(*proposal)
	p.rules, p.probe = rules, probe
	if rules.Contiguous && !probe {
		p.order = &f.way.order
	}
	h, b := &p.entry.Header, &of.Batch
	h.Kind, h.Count, h.ContentType, h.Size = engine.Batch, b.Events, b.ContentType, uint32(len(b.Payload))
	h.Key, h.Publisher, h.Tag = rules.Key, of.Publisher, rules.Writer.Tag()
	p.entry.Payload, p.entry.Proposer = b.Payload, p
	return p
}

// failed translates an error of the log into the error that append returns, and recycles the
// proposal if possible.
func (p *proposal) failed(ctx context.Context, f *feed, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err // the engine still owns the entry, so the proposal cannot be reused
	}
	probe, repeatable := p.probe, p.rules.Chosen || p.rules.Key != "" || p.rules.Writer != nil
	p.recycle()
	known := clientError(f.s.ID, err)
	if known == err {
		return fmt.Errorf("append to stream %s: %w", f.s.ID, err)
	}
	f.writeFailed(known)
	switch {
	case probe: // a probe stores nothing
		return known
	case errors.Is(err, engine.ErrUnavailable):
		return unknownOutcome("the store did not answer in time", repeatable)
	case errors.Is(err, engine.ErrReadOnly):
		return unknownOutcome("the store accepts no writes because a write failed", repeatable)
	}
	return known
}

// unknownOutcome returns the error of a publish whose batch may have been stored. The parameter
// repeatable says whether the batch has a number, a key or a writer by which the service recognizes it
// if it is sent again (D5).
func unknownOutcome(reason string, repeatable bool) *weir.Error {
	e := weir.Errorf(weir.StorageUnavailable, "%s, and the batch may have been stored: ", reason)
	if e.Unknown = true; repeatable {
		e.Message += "send it again to find out"
	} else {
		e.Message += "it has neither a sequence number nor an Idempotency-Key, so sending it again may store it twice"
	}
	return e
}

// duplicate acknowledges a batch that is already stored. The number of events and the publisher are
// those of the stored batch (D3, D38). If the duplicate was found by its idempotency key, the
// number of events comes from the verdict, because the batch itself may be evicted (D25).
func (s *Stream) duplicate(ctx context.Context, f *feed, of stream.Header, cursor weir.Seq) (*weir.Ack, error) {
	seq := of.Seq
	if of.Key != (weir.KeyDigest{}) {
		return &weir.Ack{StreamID: s.ID, Seq: seq, Accepted: of.Count, Cursor: cursor, Duplicate: true}, nil
	}
	h, err := f.log.Header(ctx, seq)
	if err != nil {
		if errors.Is(err, engine.ErrNotFound) {
			return nil, weir.Errorf(weir.InvalidSequence, "sequence %d was evicted", seq)
		}
		if known := clientError(s.ID, err); known != err {
			return nil, known
		}
		return nil, fmt.Errorf("read batch %d of stream %s: %w", seq, s.ID, err)
	}
	return &weir.Ack{StreamID: s.ID, Seq: seq, Accepted: h.Count, Cursor: cursor, Duplicate: true, Publisher: h.Publisher}, nil
}
