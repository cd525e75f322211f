package stream

import (
	"slices"

	"weir"
)

// Fork returns an independent copy without idempotency keys. It is for callers that decide entries
// before the preceding ones are durable. They keep two states: the original runs ahead and decides,
// and the fork applies entries once they are durable and is the one that clients see.
func (s *State) Fork() *State {
	c := *s
	c.keys = keys{}
	c.lost = slices.Clone(s.lost)
	c.gaps.open, c.gaps.closed = slices.Clone(s.gaps.open), slices.Clone(s.gaps.closed)
	return &c
}

// Raise raises the low mark to that of a fork that evicted. It does not update Bytes and Charge,
// which only the fork keeps correct.
func (s *State) Raise(low weir.Seq) {
	if low <= s.low {
		return
	}
	s.low = low
	s.gaps.drop(low)
	s.dropLost()
	s.keys.forget(low, s.last, s.rules.Keys)
}
