package stream

import (
	"sort"

	"weir"
)

// Due returns one marker that closes every open gap whose grace is over at now (D4). It takes effect by Apply, after
// it is durable; until then it is returned again, as things then stand.
//
// When the clock stepped back, the grace of open gaps starts anew at the first call that shows it. So that nobody waits
// for the clock to catch up, ask at least once in every GapGrace while NextDue names a moment.
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

// NextDue is the moment from which on Due returns a marker; false when no gap is open.
func (s *State) NextDue() (weir.Time, bool) {
	first, waiting := s.gaps.firstOpen()
	if !waiting {
		return 0, false
	}
	return first.since.Add(s.rules.GapGrace), true
}
