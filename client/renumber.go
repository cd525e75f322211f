package client

import (
	"errors"
	"slices"

	"weir"
)

// postpone is called when the service refuses a batch because its sequence number is in a closed
// gap (D4). No batch is, or ever will be, stored under such a number, so the batch can get another
// one. postpone reports whether the publisher does that: it sends nothing more until all batches in
// flight have a response, and then calls renumber. A publisher whose numbers were chosen by the
// program does not change them.
func (p *Publisher) postpone(f *flight, err error) bool {
	if !errors.Is(err, ErrGapClosed) || p.o.StartAt != nil || p.err != nil {
		return false
	}
	if p.refusal == nil || f.seq < p.refusal.Seq {
		p.refusal = &PublishError{Stream: p.id, Seq: f.seq, Err: err}
	}
	return true
}

// renumber gives new numbers, above the cursor, to all batches that are not stored. The service
// chooses the number of the first one. This is possible only if the service has refused each of
// them at every attempt, and has stored nothing above them: otherwise a batch could be stored twice,
// or out of order, and the publisher fails. From then on the publisher has another name, so that it
// does not mistake a batch under an old number for one under a new number.
func (p *Publisher) renumber() {
	refusal := p.refusal
	p.refusal = nil
	done := func(f *flight) bool { return f.state == stored || f.state == evicted }
	first := slices.IndexFunc(p.window, func(f *flight) bool { return !done(f) })
	rest := p.window[first:]
	if slices.ContainsFunc(rest, func(f *flight) bool { return f.unsure || done(f) }) {
		p.finish()
		p.err = refusal
		p.notify()
		return
	}
	p.name, p.claim = weir.Base62(22), weir.Base62(22)
	rest[0].claim = p.claim
	for _, f := range rest {
		f.early = 0
	}
	p.unsent = first
	p.notify()
}
