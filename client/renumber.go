package client

import (
	"errors"
	"slices"

	"weir"
)

// postpone is called when the service refuses a batch because its sequence number is in a closed
// gap (D4). Nothing is, or ever will be, stored under such a number, so the batch can get another
// number. If postpone returns true, the publisher sends nothing more until all batches in flight
// have a response, and then calls renumber. It returns false if the program chose the numbers,
// because the publisher must not change those.
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
// chooses the number of the first one. If one of these batches may already be stored, or a batch
// above them is stored, renumber makes the publisher fail instead, because a batch could be stored
// twice or out of order. With the new numbers the publisher gets a new name, so that it does not
// mistake a batch under an old number for one under a new number.
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
