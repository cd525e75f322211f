package stream

import (
	"fmt"

	"weir"
)

// Apply adds an entry to the state. The entry is a batch that Decide admitted on this state, or a
// marker (an entry that closes gaps) from Due. It panics on any other entry, because continuing
// could store two batches under one sequence.
//
// If all gaps of a marker have been filled or evicted in the meantime, Apply only advances the time
// of the newest entry.
func (s *State) Apply(h Header) {
	s.check(h)
	s.take(h, h.Time)
}

// take adds an entry to the state. If the entry opens a gap, the grace period of that gap starts at
// graceStart, the time when this process learned of the entry.
func (s *State) take(h Header, graceStart weir.Time) {
	s.last = h.Time
	s.gaps.rewind(graceStart)
	s.keys.forget(s.low, h.Time, s.rules.Keys)
	record(s, h.Writer, h.Time)
	if h.Ends {
		defer end(s)
	}
	if h.Closed {
		s.gaps.close(h.Seq)
		return
	}
	if late(s, h.Seq) {
		s.gaps.fill(h.Seq)
	} else {
		s.extend(&h, graceStart)
	}
	s.bytes += int64(h.Size)
	s.charge += h.charge()
	if h.Key != (digest{}) {
		keysOf(s).add(h)
	}
}

// check panics if h contradicts the state.
func (s *State) check(h Header) {
	must := func(ok bool, fault string) {
		if !ok {
			panic(fmt.Sprintf("stream: entry %d at time %d %s (cursor %d, low %d, newest time %d)",
				h.Seq, h.Time, fault, s.cursor, s.low, s.last))
		}
	}
	must(h.Time >= s.last, "is older than the newest entry")
	must(!s.ended, "follows the entry that closed the stream")
	if h.Ends && h.Closed {
		must(h.Seq == s.next(), "closes the stream at another sequence than the next one")
		return
	}
	must(h.Seq <= weir.MaxSeq, "is above the highest sequence")
	if h.Closed {
		must(h.First <= h.Seq, "closes nothing")
		must(h.Seq < s.next(), "closes sequences above the cursor")
		must(h.Seq < s.low || s.gaps.at(h.Seq) != filled, "closes a stored batch")
		return
	}
	must(h.Late == late(s, h.Seq), "has the wrong late flag")
	if s.ever && h.Seq <= s.cursor {
		must(h.Seq >= s.low, "was evicted")
		must(s.gaps.at(h.Seq) == open, "is already stored or closed")
	}
	if h.Key != (digest{}) {
		_, known := s.keys.find(h.Key, h.Time)
		must(!known, "repeats an idempotency key")
		must(!h.Late, "is below the cursor but has an idempotency key")
	}
}

// extend moves the cursor up to the sequence of a batch. The skipped sequences become a gap, whose
// grace period starts at graceStart.
func (s *State) extend(h *Header, graceStart weir.Time) {
	if h.Seq == 0 {
		s.zero = true
	} else {
		if !s.ever {
			s.low = 1 // the first stored sequence is not 0, so 0 is closed (D4)
		}
		if from := s.cursor + 1; from < h.Seq {
			s.gaps.add(from, h.Seq-1, graceStart)
		}
	}
	s.ever = true
	s.cursor = h.Seq
	s.stored = h.Time
}
