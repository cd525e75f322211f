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

// Publish is a batch on its way into a stream.
type Publish struct {
	Chosen bool     // the client chose Seq
	Seq    weir.Seq // when Chosen
	Key    string   // idempotency key; only when not Chosen
	Batch  weir.Batch
}

// proposal is a publish on its way through the log.
type proposal struct {
	rules   stream.Publish
	probe   bool           // there is no body yet: nothing may be stored
	verdict stream.Verdict // set by the judge
	cursor  weir.Seq       // of the stream after it was stored
	entry   engine.Entry
}

var proposals = sync.Pool{New: func() any { return new(proposal) }}

// Decide answers what needs no body (D19): an acknowledgement of a duplicate, or a refusal (InvalidSequence,
// SequenceTooFarAhead, StreamNotFound). A nil acknowledgement and no error: send the body.
func (s *Stream) Decide(ctx context.Context, p *Publish) (*weir.Ack, error) {
	if !p.Chosen && p.Key == "" {
		return nil, nil // there is always a next sequence
	}
	f, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer f.release()
	rules := stream.Publish{Chosen: p.Chosen, Seq: p.Seq, Key: p.Key, Size: -1}
	v, seen, cursor, err := f.preview(rules)
	if err == nil && v.Outcome != stream.Stored && s.hub.shared != nil { // it may rest on old news
		if err := f.catchUp(ctx); err != nil {
			return nil, err
		}
		v, seen, cursor, err = f.preview(rules)
	}
	switch {
	case err != nil:
		return nil, err
	case v.Outcome == stream.Stored:
		return nil, nil
	case v.Outcome == stream.Refused && seen.Outcome == stream.Refused:
		return nil, v.Err
	case v.Outcome == stream.Duplicate && seen.Outcome == stream.Duplicate:
		return s.duplicate(ctx, f, v.Header.Seq, cursor)
	}
	// The answer rests on something that is not durable yet: ask again behind it.
	ack, err := f.propose(ctx, rules, &weir.Batch{}, true)
	if err != nil || !ack.Duplicate {
		return nil, err
	}
	return &ack, nil
}

// preview is the verdict on what is known now, and on what is durable of it.
func (f *feed) preview(rules stream.Publish) (v, seen stream.Verdict, cursor weir.Seq, err error) {
	now := f.hub.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped {
		return v, v, 0, notFound(f.s.ID)
	}
	f.evict(now)
	v = f.ahead.Decide(rules, now)
	seen = v
	if v.Outcome != stream.Stored {
		seen = f.visible(rules, v, now)
	}
	return v, seen, f.state.Cursor().Cursor, nil
}

// visible is the verdict on what is durable. Keys are known to the state ahead alone: theirs is durable when the
// batch is. With f.mu held.
func (f *feed) visible(p stream.Publish, ahead stream.Verdict, now weir.Time) stream.Verdict {
	if ahead.Outcome == stream.Duplicate {
		p = stream.Publish{Chosen: true, Seq: ahead.Header.Seq, Size: -1}
	}
	return f.state.Decide(p, now)
}

// Publish stores the batch and returns its acknowledgement once it is durable (D5), or refuses it as Decide does, or
// with PayloadTooLarge or StorageUnavailable. The payload belongs to the hub from here on.
func (s *Stream) Publish(ctx context.Context, p *Publish) (weir.Ack, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return weir.Ack{}, err
	}
	defer f.release()
	rules := stream.Publish{Chosen: p.Chosen, Seq: p.Seq, Key: p.Key, Size: int64(len(p.Batch.Payload))}
	return f.propose(ctx, rules, &p.Batch, false)
}

// propose sends a batch through the log and returns what became of it.
func (f *feed) propose(ctx context.Context, rules stream.Publish, b *weir.Batch, probe bool) (weir.Ack, error) {
	v, cursor, err := f.append(ctx, rules, b, probe)
	if err != nil {
		return weir.Ack{}, err
	}
	if v.Outcome != stream.Stored && f.hub.shared != nil { // a refusal, and the cursor of a duplicate, may rest on old news
		if err = f.catchUp(ctx); err == nil && v.Outcome == stream.Refused {
			v, cursor, err = f.append(ctx, rules, b, probe)
		}
		if err != nil {
			return weir.Ack{}, err
		}
	}
	switch v.Outcome {
	case stream.Stored:
		return weir.Ack{StreamID: f.s.ID, Seq: v.Header.Seq, Accepted: b.Events, Cursor: cursor}, nil
	case stream.Duplicate:
		f.mu.Lock()
		cursor = f.state.Cursor().Cursor
		f.mu.Unlock()
		ack, err := f.s.duplicate(ctx, f, v.Header.Seq, cursor)
		if err != nil {
			return weir.Ack{}, err
		}
		return *ack, nil
	}
	return weir.Ack{}, v.Err
}

// append has the log judge a batch, and store it if it is to be stored. The cursor is that of the stream after it.
func (f *feed) append(ctx context.Context, rules stream.Publish, b *weir.Batch, probe bool) (v stream.Verdict, cursor weir.Seq, err error) {
	p := proposals.Get().(*proposal)
	*p = proposal{rules: rules, probe: probe}
	p.entry = engine.Entry{
		Header:   engine.Header{Kind: engine.Batch, Count: b.Events, ContentType: b.ContentType, Key: rules.Key, Size: uint32(len(b.Payload))},
		Payload:  b.Payload,
		Proposer: p,
	}
	err = f.log.Append(ctx, &p.entry)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return v, 0, err // the engine keeps the entry
		}
		proposals.Put(p)
		if known := outcome(f.s.ID, err); known != err {
			return v, 0, known
		}
		return v, 0, fmt.Errorf("append to stream %s: %w", f.s.ID, err)
	}
	v, cursor = p.verdict, p.cursor
	*p = proposal{}
	proposals.Put(p)
	return v, cursor, nil
}

// duplicate acknowledges a batch that is stored already, with what the stored one says (D3).
func (s *Stream) duplicate(ctx context.Context, f *feed, seq, cursor weir.Seq) (*weir.Ack, error) {
	h, err := f.log.Header(ctx, seq)
	if err != nil {
		if errors.Is(err, engine.ErrNotFound) {
			return nil, weir.Errorf(weir.InvalidSequence, "sequence %d was evicted", seq)
		}
		if known := outcome(s.ID, err); known != err {
			return nil, known
		}
		return nil, fmt.Errorf("read batch %d of stream %s: %w", seq, s.ID, err)
	}
	return &weir.Ack{StreamID: s.ID, Seq: seq, Accepted: h.Count, Cursor: cursor, Duplicate: true}, nil
}
