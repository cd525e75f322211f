package stream

import (
	"fmt"
	"iter"

	"weir"
)

// Restore rebuilds a state from the note of the last trim (nil if there was none) and the entries
// of the log in increasing order of sequence. It skips entries below the note's low mark. It fails
// if the entries cannot be the log of one stream, or if a batch is missing that the note says is
// kept.
//
// A gap that no marker closed is open and gets its full grace again, from now (D4).
func Restore(r Rules, created weir.Time, note []byte, entries iter.Seq[Header], now weir.Time) (*State, error) {
	s := New(r, created)
	if note != nil {
		if err := s.load(note); err != nil {
			return nil, err
		}
	}
	noted := *s
	if s.low > 0 {
		s.cursor = s.low - 1 // fold raises it to the highest entry; without entries this is the cursor
	} else {
		s.ever = false
	}
	markers, err := s.fold(entries, now)
	if err != nil {
		return nil, err
	}
	if kept := noted.low < noted.next(); kept && (s.low != noted.low || noted.cursor >= s.next() || s.gaps.at(noted.cursor) != filled) {
		return nil, fmt.Errorf("entries are missing: according to the checkpoint, batch %d is kept", noted.cursor)
	}
	for _, through := range markers {
		if through >= s.next() || s.gaps.at(through) == filled && !s.isLost(through) {
			return nil, fmt.Errorf("marker %d is not in a gap", through)
		}
		s.gaps.close(through)
	}
	s.keys.index(s.low, s.clock(now), s.rules.Keys)
	return s, nil
}

// fold adds the kept entries and returns the last sequence of each marker. The caller closes the
// gaps afterwards: in increasing order a marker comes before the batch above its gap, so the gap
// does not exist yet when fold reads the marker. Keys are only collected.
func (s *State) fold(entries iter.Seq[Header], now weir.Time) (markers []weir.Seq, err error) {
	low := s.low
	next := low
	for h := range entries {
		if h.Seq < low {
			continue
		}
		if h.Seq < next || h.Seq > weir.MaxSeq || h.Lost && h.First > h.Seq {
			return nil, fmt.Errorf("entry %d is out of order: expected %d or above", h.Seq, next)
		}
		next = h.Seq + 1
		s.last = max(s.last, h.Time)
		if h.Closed {
			markers = append(markers, h.Seq)
			continue
		}
		if h.Lost {
			s.lose(h, now)
			continue
		}
		s.extend(h, now)
		s.bytes += int64(h.Size)
		s.charge += h.charge()
		if h.Key != (digest{}) {
			s.keys.collect(&h)
		}
	}
	return markers, nil
}
