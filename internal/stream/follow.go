package stream

import "weir"

// Follow adds an entry that another process wrote to the log that both processes share. It must be
// called in the order of the log. Unlike Apply it does not panic if the entry disagrees with the
// state, because the other process has its own clock and may have evicted more or less than this
// process:
//
//   - An entry below this state's low mark is skipped. The other process will soon evict the entry
//     too.
//   - An idempotency key that this state still remembers is overwritten.
//
// The grace of a gap that the entry opens runs from now, by this process's clock.
func (s *State) Follow(h Header, now weir.Time) {
	h.Time = max(h.Time, s.last)
	if h.Seq < s.low {
		s.last = h.Time
		return
	}
	s.take(h, now)
}

// Back undoes the newest entries of s. The parameter fork must be a fork of s that lacks exactly
// these entries. Back returns a copy of fork with the idempotency keys of s, except the newest n
// keys. The argument n must be the number of undone entries that have a key. The state s must not
// be used afterwards, because the result takes over its keys.
func (s *State) Back(fork *State, n int) *State {
	c := fork.Fork()
	c.keys = s.keys
	c.keys.takeBack(n)
	return c
}

// EvictBelow raises the low mark to low, after another process evicted everything below low. The
// function headers has the same meaning as in Evict.
func (s *State) EvictBelow(low weir.Seq, headers func(from weir.Seq, visit func(Header) bool)) {
	if low = min(low, s.next()); low <= s.low {
		return
	}
	headers(s.low, func(h Header) bool {
		if h.Seq < low && !h.Closed {
			s.bytes -= int64(h.Size)
			s.charge -= h.charge()
		}
		return h.Seq < low
	})
	s.low = low
	s.gaps.drop(low)
	s.dropLost()
	s.keys.forget(low, s.last, s.rules.Keys)
}
