package stream

import (
	"sort"

	"weir"
)

// Due returns one marker that closes every open gap whose grace has ended at now (D4). The caller
// makes the marker durable and then passes it to Apply. Until then Due returns a marker again,
// recomputed from the current gaps.
//
// If the clock has stepped back, the first call that sees the earlier time restarts the grace of
// the open gaps. While NextDue returns a time, call Due at least once per GapGrace; otherwise
// subscribers would wait until the clock has caught up.
func (s *State) Due(now weir.Time) (marker Header, ok bool) {
	s.gaps.rewind(now)
	n := sort.Search(len(s.gaps.open), func(i int) bool {
		look(1)
		return s.gaps.open[i].since.Add(s.rules.GapGrace) > now
	})
	if n == 0 {
		return Header{}, false
	}
	first, last := s.gaps.open[0].from, s.gaps.open[n-1].to
	return Header{Closed: true, First: first, Seq: last, Time: s.clock(now)}, true
}

// NextDue returns the time from which Due returns a marker. It is false if no gap is open.
func (s *State) NextDue() (weir.Time, bool) {
	first, waiting := s.gaps.firstOpen()
	if !waiting {
		return 0, false
	}
	return first.since.Add(s.rules.GapGrace), true
}
