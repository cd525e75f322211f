package stream

import (
	"slices"

	"weir"
)

// Fork returns an independent copy without idempotency keys. Whoever decides entries before they are durable keeps two
// states: one ahead, which decides, and its fork, which follows when entries are durable and is what everybody sees.
func (s *State) Fork() *State {
	c := *s
	c.keys = keys{}
	c.lost = slices.Clone(s.lost)
	c.gaps.open, c.gaps.closed = slices.Clone(s.gaps.open), slices.Clone(s.gaps.closed)
	return &c
}

// Raise moves the low mark up to that of a fork that evicted. Bytes is not kept up by it: the fork knows.
func (s *State) Raise(low weir.Seq) {
	if low <= s.low {
		return
	}
	s.low = low
	s.gaps.drop(low)
	s.dropLost()
	s.keys.forget(low, s.last)
}
