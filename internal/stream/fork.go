package stream

import (
	"slices"

	"weir"
)

// Fork returns an independent copy without idempotency keys. It is for callers that decide on an
// entry before the preceding entries are durable. Such a caller keeps two states. The original
// contains all admitted entries, and the caller uses it to decide on new entries. The fork contains
// only the durable entries, and clients see the fork.
func (s *State) Fork() *State {
	c := *s
	c.keys = nil
	if s.wrote != nil {
		w := s.wrote.clone()
		c.wrote = &w
	}
	c.lost = slices.Clone(s.lost)
	c.gaps.open, c.gaps.closed = slices.Clone(s.gaps.open), slices.Clone(s.gaps.closed)
	return &c
}

// Raise raises the low mark of s to low. It is called after a fork of s evicted the batches below
// low. It does not update Bytes and Charge of s, so after Raise only the values of the fork are
// correct.
func (s *State) Raise(low weir.Seq) {
	if low <= s.low {
		return
	}
	s.low = low
	s.gaps.drop(low)
	s.dropLost()
	s.keys.forget(low, s.last, s.rules.Keys)
}

// Begin makes seq the first sequence of a stream in which nothing was ever stored, as if everything
// below seq had been evicted. It reports whether it did. The caller must store a checkpoint before
// the first entry.
func Begin(s *State, seq weir.Seq) bool {
	if s.ever || s.ended || seq <= 1 || seq > weir.MaxSeq {
		return false
	}
	s.ever, s.low, s.cursor = true, seq, seq-1
	return true
}
