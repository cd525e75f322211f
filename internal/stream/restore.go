package stream

import (
	"fmt"
	"iter"

	"weir"
)

// Restore rebuilds a state from the note of the last trim (nil when there was none) and the entries that the log
// holds, in increasing sequence; entries below the mark of the note are passed over. It fails when they cannot be the
// log of one stream, or lack what the note says is there.
//
// Every gap that no marker closed is open and gets its whole grace again, from now on (D4).
func Restore(r Rules, created weir.Time, note []byte, entries iter.Seq[Header], now weir.Time) (*State, error) {
	s := New(r, created)
	if note != nil {
		if err := s.load(note); err != nil {
			return nil, err
		}
	}
	noted := *s
	if s.low > 0 {
		s.cursor = s.low - 1 // what is above it is for the entries to tell; when nothing is, this is the cursor
	} else {
		s.ever = false
	}
	markers, err := s.fold(entries, now)
	if err != nil {
		return nil, err
	}
	if kept := noted.low < noted.next(); kept && (s.low != noted.low || noted.cursor >= s.next() || s.gaps.at(noted.cursor) != filled) {
		return nil, fmt.Errorf("entries are missing: batch %d was stored and is kept by the checkpoint", noted.cursor)
	}
	for _, through := range markers {
		if through >= s.next() || s.gaps.at(through) == filled && !s.isLost(through) {
			return nil, fmt.Errorf("marker %d is not in a gap", through)
		}
		s.gaps.close(through)
	}
	s.keys.forget(s.low, s.clock(now))
	return s, nil
}

// fold takes kept entries over and returns where markers end: a marker may come before the batch above its gap, so
// gaps can be closed only when all batches are known.
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
		if h.Key != "" {
			s.keys.forget(s.low, h.Time)
			s.keys.add(h.Key, h.Seq, h.Time)
		}
	}
	return markers, nil
}
