package stream

import "weir"

// Evict moves the low mark above everything that is too old at now, and above as many of the lowest batches as it
// takes to get down to MaxBytes (D12). It returns how many batches went. The cursor stays (D1), and what was missing
// below the new mark is closed (D4). Idempotency keys end with their batch or their life, whichever is first (D25).
//
// headers visits the kept entries of sequence from and above in increasing sequence until visit returns false, and
// must show every applied batch: one that is left out is never taken off Bytes. When nothing is evicted, few or no
// headers are looked at.
//
// Until the mark is durable (a trim with Checkpoint), a crash brings back what was evicted; Evict after Restore takes it
// away again.
func (s *State) Evict(now weir.Time, headers func(from weir.Seq, visit func(Header) bool)) (evicted int) {
	now = s.clock(now)
	if s.low < s.next() {
		evicted = s.expire(now, headers) + s.shrink(headers)
	}
	if evicted > 0 {
		s.gaps.drop(s.low)
		s.dropLost()
	}
	s.keys.forget(s.low, now)
	return evicted
}

// expire evicts up to the highest batch that is too old. A batch below it may be younger, having filled a gap late,
// and goes with it: eviction takes sequences from the lowest up (D12). Above a batch that was not late everything was
// stored after it, so the first such batch that is young enough ends the search.
func (s *State) expire(now weir.Time, headers func(weir.Seq, func(Header) bool)) (evicted int) {
	count, bytes := 0, int64(0)
	headers(s.low, func(h Header) bool {
		if h.Closed {
			return true
		}
		count++
		bytes += int64(h.Size)
		if h.Time.Add(s.rules.Retention) <= now {
			s.low = h.Seq + 1
			s.bytes -= bytes
			evicted += count
			count, bytes = 0, 0
			return true
		}
		return h.Late
	})
	return evicted
}

// shrink evicts the lowest batches until the rest fits into MaxBytes.
func (s *State) shrink(headers func(weir.Seq, func(Header) bool)) (evicted int) {
	if s.bytes <= s.rules.MaxBytes {
		return 0
	}
	headers(s.low, func(h Header) bool {
		if h.Closed {
			return true
		}
		s.low = h.Seq + 1
		s.bytes -= int64(h.Size)
		evicted++
		return s.bytes > s.rules.MaxBytes
	})
	return evicted
}
