package stream

import "weir"

// Follow takes an entry into the state that another process decided, at the same place of the same log. Its clock may be
// another one, so it may have evicted more or less than we have: what is below our low mark was on its way out, and a key
// that we still remember counts no more. The grace of a gap that it leaves begins at now, by our own clock, when we heard of it.
func (s *State) Follow(h Header, now weir.Time) {
	h.Time = max(h.Time, s.last)
	if h.Seq < s.low {
		s.last = h.Time
		return
	}
	s.take(h, now)
}

// Back is the state of seen with the idempotency keys of s, without the newest n of them: where s stood before the entries
// that seen lacks were applied, n of which had a key.
func (s *State) Back(seen *State, n int) *State {
	c := seen.Fork()
	c.keys = s.keys
	n = min(n, len(c.keys.queue))
	for _, k := range c.keys.queue[len(c.keys.queue)-n:] {
		delete(c.keys.place, k.digest)
	}
	c.keys.queue = c.keys.queue[:len(c.keys.queue)-n]
	return c
}

// EvictBelow moves the low mark up to low, which another process evicted to, and returns how many batches went. headers is
// as in Evict.
func (s *State) EvictBelow(low weir.Seq, headers func(from weir.Seq, visit func(Header) bool)) (evicted int) {
	if low = min(low, s.next()); low <= s.low {
		return 0
	}
	headers(s.low, func(h Header) bool {
		if h.Seq < low && !h.Closed {
			s.bytes -= int64(h.Size)
			evicted++
		}
		return h.Seq < low
	})
	s.low = low
	s.gaps.drop(low)
	s.dropLost()
	s.keys.forget(low, s.last)
	return evicted
}
