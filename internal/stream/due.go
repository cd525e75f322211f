package stream

import (
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

// Restart starts the grace of the missing sequences from seq upwards afresh, from now: their
// publisher could not have filled them until now, because the store took no writes, or because it
// was just sending one of them (D4).
func (s *State) Restart(seq weir.Seq, now weir.Time) {
	s.gaps.rewind(now)
	s.gaps.restart(seq, now)
}
