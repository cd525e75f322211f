package stream

import (
	"math"
	"sort"

	"weir"
)

// NoneHeld is the argument of Due while no request for a missing sequence is being received. It is
// above every sequence.
const NoneHeld = weir.MaxSeq + 1

// Due returns one marker that closes every open gap whose grace has ended at now (D4). The caller
// makes the marker durable and then passes it to Apply. Until then Due returns a marker again,
// recomputed from the current gaps.
//
// held is the lowest missing sequence for which a request is being received. It stays open however
// long that takes, and with it everything above: subscribers could not get past it anyway.
//
// If the clock has stepped back, the first call that sees the earlier time restarts the grace of
// the open gaps. While NextDue returns a time, call Due at least once per GapGrace; otherwise
// subscribers would wait until the clock has caught up.
func (s *State) Due(now weir.Time, held weir.Seq) (marker Header, ok bool) {
	s.gaps.rewind(now)
	n := sort.Search(len(s.gaps.open), func(i int) bool {
		look(1)
		return s.gaps.open[i].since.Add(s.rules.GapGrace) > now || s.gaps.open[i].from >= held
	})
	if n == 0 {
		return Header{}, false
	}
	first, last := s.gaps.open[0].from, min(s.gaps.open[n-1].to, held-1)
	return Header{Closed: true, First: first, Seq: last, Time: s.clock(now)}, true
}

// NextDue returns the time from which Due returns a marker if nothing is held. It is false if no
// gap is open.
func (s *State) NextDue() (weir.Time, bool) {
	first, waiting := s.gaps.firstOpen()
	if !waiting {
		return 0, false
	}
	return first.since.Add(s.rules.GapGrace), true
}

// Awaits tells whether seq is missing and can still be filled.
func (s *State) Awaits(seq weir.Seq) bool { return s.gaps.at(seq) == open }

// Afresh is a time before any other, for Pause.
const Afresh = weir.Time(math.MinInt64 / 2)

// Pause says that the grace of the missing sequences from seq upwards stood still from the time from
// until now (D4): a request for seq was being received, or the store took no writes. The rest of the
// grace follows; if from is Afresh, the whole grace.
func (s *State) Pause(seq weir.Seq, from, now weir.Time) {
	s.gaps.rewind(now)
	s.gaps.pause(seq, from, now)
}
