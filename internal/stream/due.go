package stream

import (
	"math"
	"sort"

	"weir"
)

// NoneHeld is passed to Due as lowestHeld if no request for a missing sequence is being received.
// It is above every sequence.
const NoneHeld = weir.MaxSeq + 1

// Due returns one marker that closes every open gap whose grace period has ended at the time now
// (D4). The caller makes the marker durable and then passes it to Apply. If Due is called again
// before Apply, it computes the marker again from the current gaps.
//
// lowestHeld is the lowest missing sequence for which a request is being received. This sequence
// stays open until the request has ended, however long that takes. The gaps above it stay open too.
// Closing them would be of no use, because subscribers could not get past the held sequence.
//
// If the clock has stepped back, the first call that sees the earlier time restarts the grace of
// the open gaps. While a gap is open, the caller must call Due at least once per GapGrace.
// Otherwise subscribers would wait until the clock shows the old time again.
func (s *State) Due(now weir.Time, lowestHeld weir.Seq) (marker Header, ok bool) {
	s.gaps.rewind(now)
	n := sort.Search(len(s.gaps.open), func(i int) bool {
		look(1)
		return s.gaps.open[i].graceStart.Add(s.rules.GapGrace) > now || s.gaps.open[i].from >= lowestHeld
	})
	if n == 0 {
		return Header{}, false
	}
	first, last := s.gaps.open[0].from, min(s.gaps.open[n-1].to, lowestHeld-1)
	return Header{Closed: true, First: first, Seq: last, Time: s.clock(now)}, true
}

// CloseGaps returns one marker that closes every open gap, whatever is left of its grace, for a stream
// whose gaps cannot be filled because it is a copy. As after Due, the caller makes the marker durable
// and then passes it to Apply.
func CloseGaps(s *State, now weir.Time) (marker Header, ok bool) {
	n := len(s.gaps.open)
	if n == 0 {
		return Header{}, false
	}
	return Header{Closed: true, First: s.gaps.open[0].from, Seq: s.gaps.open[n-1].to, Time: s.clock(now)}, true
}

// NextDue returns the time at which the grace of the lowest open gap ends. From then on, Due
// returns a marker unless the first sequence of that gap is held. The second result is false if no
// gap is open.
func (s *State) NextDue() (weir.Time, bool) {
	first, waiting := s.gaps.firstOpen()
	if !waiting {
		return 0, false
	}
	return first.graceStart.Add(s.rules.GapGrace), true
}

// Awaits reports whether seq is missing and can still be filled.
func (s *State) Awaits(seq weir.Seq) bool { return s.gaps.at(seq) == open }

// Afresh is passed to Pause as pausedAt to give gaps their whole grace again. It is earlier than
// any other time.
const Afresh = weir.Time(math.MinInt64 / 2)

// Pause records that the grace of all missing sequences from seq upwards was paused from pausedAt
// to now (D4). During this time a request for seq was being received, or the store accepted no
// writes. The rest of the grace runs from now on. If pausedAt is Afresh, the whole grace runs from
// now on.
func (s *State) Pause(seq weir.Seq, pausedAt, now weir.Time) {
	s.gaps.rewind(now)
	s.gaps.pause(seq, pausedAt, now)
}
