package stream

import (
	"time"

	"weir"
)

// Evict evicts batches by raising the low mark above them (see Low). It evicts every batch that has
// expired at the time now, and all batches below it. Then it evicts further batches, lowest first,
// until the charge of the remaining batches (see Header.charge) fits into MaxBytes. The batch at
// the cursor is never evicted for its size (D12). Evict returns the number of evicted batches. The
// cursor does not change (D1), and sequences missing below the new mark are closed (D4). Of the
// idempotency keys of evicted batches, the state remembers only the newest, at most Rules.Keys of
// them (D25).
//
// The function headers must call visit for the kept entries in increasing order, beginning with the
// given sequence, until visit returns false. If it leaves out a batch, the size of that batch is
// never subtracted from Bytes and Charge. If nothing is evicted, few or no headers are visited.
//
// The new mark becomes durable with the next trim, which stores a Checkpoint. If the process
// crashes before the trim, Restore finds the evicted batches again, and the next call of Evict
// evicts them again.
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

// expire evicts all batches up to and including the highest expired batch. Eviction always removes
// the lowest sequences (D12). So expire also evicts younger batches that were stored late and
// filled a gap below an expired batch.
//
// The search ends at the first batch that has not expired and was not stored late. Everything above
// such a batch was stored after it and is even younger.
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

// shrink evicts the lowest batches until the rest fit into MaxBytes, or only the batch at the
// cursor is left.
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

// SetBounds changes two of the rules (D37). The next call of Evict applies lower bounds. Higher
// bounds do not bring evicted batches back.
func SetBounds(s *State, maxBytes int64, retention time.Duration) {
	s.rules.MaxBytes, s.rules.Retention = maxBytes, retention
}
