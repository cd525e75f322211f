package stream

import "weir"

// Evict raises the low mark above every batch that has expired at now, and then above as many of
// the lowest batches as it takes for the charge of the rest to fit into MaxBytes; the newest batch
// stays in any case (D12). It returns the number of evicted batches. The cursor does not change (D1),
// and sequences missing below the new mark are closed (D4). Of the idempotency keys of evicted
// batches, the newest Rules.Keys are remembered (D25).
//
// headers must visit the kept entries from sequence from upwards, in increasing order, until visit
// returns false. It must show every applied batch: the size of one that it leaves out is never
// subtracted from Bytes and Charge. If nothing is evicted, few or no headers are visited.
//
// The new mark becomes durable with a trim that carries Checkpoint. After a crash before that, the
// evicted batches are back, and Evict after Restore evicts them again.
func (s *State) Evict(now weir.Time, headers func(from weir.Seq, visit func(Header) bool)) (evicted int) {
	now = s.clock(now)
	if s.low < s.next() {
		evicted = s.expire(now, headers) + s.shrink(headers)
	}
	if evicted > 0 {
		s.gaps.drop(s.low)
		s.dropLost()
	}
	s.keys.forget(s.low, now, s.rules.Keys)
	return evicted
}

// expire evicts up to and including the highest expired batch. Eviction always takes the lowest
// sequences (D12), so it also takes younger batches below that one, which filled a gap late.
//
// The search ends at the first batch that is young enough and not late: everything above such a
// batch was stored after it and is younger still.
func (s *State) expire(now weir.Time, headers func(weir.Seq, func(Header) bool)) (evicted int) {
	count, bytes, charge := 0, int64(0), int64(0)
	headers(s.low, func(h Header) bool {
		if h.Closed {
			return true
		}
		count++
		bytes += int64(h.Size)
		charge += h.charge()
		if h.Time.Add(s.rules.Retention) <= now {
			s.low = h.Seq + 1
			s.bytes -= bytes
			s.charge -= charge
			evicted += count
			count, bytes, charge = 0, 0, 0
			return true
		}
		return h.Late
	})
	return evicted
}

// shrink evicts the lowest batches until the rest fit into MaxBytes, or only the newest is left.
func (s *State) shrink(headers func(weir.Seq, func(Header) bool)) (evicted int) {
	if s.charge <= s.rules.MaxBytes {
		return 0
	}
	headers(s.low, func(h Header) bool {
		if h.Closed {
			return true
		}
		if h.Seq >= s.cursor {
			return false
		}
		s.low = h.Seq + 1
		s.bytes -= int64(h.Size)
		s.charge -= h.charge()
		evicted++
		return s.charge > s.rules.MaxBytes
	})
	return evicted
}
