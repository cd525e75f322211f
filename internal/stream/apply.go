package stream

import (
	"fmt"

	"weir"
)

// Apply takes an entry into the state: a batch that Decide let through on this very state, or a marker from Due.
// Anything else is a fault of the caller that would end in two batches under one sequence, and panics.
//
// A marker that closes nothing (any more) changes nothing but the newest time.
func (s *State) Apply(h Header) {
	s.check(h)
	s.take(h, h.Time)
}

// take takes an entry into the state that is known since the given moment.
func (s *State) take(h Header, since weir.Time) {
	s.last = h.Time
	s.gaps.rewind(since)
	s.keys.forget(s.low, h.Time)
	if h.Closed {
		s.gaps.close(h.Seq)
		return
	}
	if s.late(h.Seq) {
		s.gaps.fill(h.Seq)
	} else {
		s.extend(h, since)
	}
	s.bytes += int64(h.Size)
	if h.Key != "" {
		s.keys.add(h.Key, h.Seq, h.Time)
	}
}

// check panics when h contradicts the state.
func (s *State) check(h Header) {
	must := func(ok bool, fault string) {
		if !ok {
			panic(fmt.Sprintf("stream: entry %d of time %d %s (cursor %d, low %d, newest time %d)",
				h.Seq, h.Time, fault, s.cursor, s.low, s.last))
		}
	}
	must(h.Time >= s.last, "is older than the newest")
	must(h.Seq <= weir.MaxSeq, "is above the highest sequence")
	if h.Closed {
		must(h.First <= h.Seq, "closes nothing")
		must(h.Seq < s.next(), "closes what is above the cursor")
		must(h.Seq < s.low || s.gaps.at(h.Seq) != filled, "closes a stored batch")
		return
	}
	must(h.Late == s.late(h.Seq), "is wrong about being late")
	if s.ever && h.Seq <= s.cursor {
		must(h.Seq >= s.low, "is gone")
		must(s.gaps.at(h.Seq) == open, "is stored or closed")
	}
	if h.Key != "" {
		_, known := s.keys.find(h.Key, s.low, h.Time)
		must(!known, "repeats a key")
		must(!h.Late, "has a key below the cursor")
	}
}

// extend moves the cursor up to a batch. What is left out below it is an open gap since the given moment.
func (s *State) extend(h Header, since weir.Time) {
	if h.Seq == 0 {
		s.zero = true
	} else {
		if !s.ever {
			s.low = 1 // a missing 0 is closed at once (D4)
		}
		if from := s.cursor + 1; from < h.Seq {
			s.gaps.add(from, h.Seq-1, since)
		}
	}
	s.ever = true
	s.cursor = h.Seq
	s.stored = h.Time
}
