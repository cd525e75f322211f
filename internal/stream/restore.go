package stream

import (
	"fmt"
	"iter"

	"weir"
)

// Restore rebuilds a state from the note of the last trim (an encoded Checkpoint; nil if there was
// no trim) and the entries of the log in increasing order of sequence. It skips entries below the
// note's low mark. It fails if the entries cannot be the log of one stream, or if the note refers
// to a stored batch that is missing.
//
// A gap is closed only by a marker in the log. All other gaps are open and get their full grace
// again, from now (D4).
func Restore(r Rules, created weir.Time, note []byte, entries iter.Seq[*Header], now weir.Time) (*State, error) {
	var x Restoration
	if err := x.Begin(r, created, note, now); err != nil {
		return nil, err
	}
	entries(x.Add)
	return x.End()
}

// Restoration does the same as Restore, but is passed the entries: call Begin, then Add for each entry
// while it returns true, and then End. It can be used again.
type Restoration struct {
	folding
	noted struct{ low, next, cursor weir.Seq } // of the state according to the note
}

// Begin takes the note of the last trim.
func (x *Restoration) Begin(r Rules, created weir.Time, note []byte, now weir.Time) error {
	s := New(r, created)
	if note != nil {
		if err := s.load(note); err != nil {
			return err
		}
	}
	x.noted.low, x.noted.next, x.noted.cursor = s.low, s.next(), s.cursor
	if s.low > 0 {
		s.cursor = s.low - 1 // Add raises the cursor to the highest entry, if there is any
	} else {
		s.ever = false
	}
	x.folding = fold(s, now)
	return nil
}

// End returns the state.
func (x *Restoration) End() (*State, error) {
	s, noted, now, markers, err := x.s, x.noted, x.now, x.markers, x.err
	*x = Restoration{}
	if err != nil {
		return nil, err
	}
	if kept := noted.low < noted.next; kept && (s.low != noted.low || noted.cursor >= s.next() || s.gaps.at(noted.cursor) != filled) {
		return nil, fmt.Errorf("entries are missing: according to the checkpoint, batch %d is kept", noted.cursor)
	}
	for _, through := range markers {
		if through >= s.next() || s.gaps.at(through) == filled && !s.isLost(through) {
			return nil, fmt.Errorf("marker %d is not in a gap", through)
		}
		s.gaps.close(through)
	}
	if s.ended {
		end(s)
	}
	s.keys.index(s.low, s.clock(now), s.rules.Keys)
	return s, nil
}

// folding adds entries from the low mark upwards to a state. It collects the last sequence of each
// marker, because the caller must close the gaps up to there. It cannot close them itself: in
// increasing order a marker comes before the batch above its gap, so the gap does not exist yet when
// the marker is added. If s.ended is set, the caller must also call end, which closes the gaps that are
// still open. folding only collects keys; the caller must call keys.index.
type folding struct {
	s       *State
	now     weir.Time
	next    weir.Seq // the next entry is not below this sequence
	markers []weir.Seq
	// limit is above all sequences that can have been stored. If an entry closed the stream, this is the
	// sequence that the next batch would have got; otherwise it is above every sequence.
	limit weir.Seq
	begun bool // an entry was added; entries below the low mark come before it
	found bool // the entry that closed the stream was read
	err   error
}

// fold begins to add entries to the state.
func fold(s *State, now weir.Time) folding {
	return folding{s: s, now: now, next: s.low, limit: weir.MaxSeq + 1}
}

// Add adds an entry to the state. It returns false if there was an error.
func (f *folding) Add(h *Header) bool {
	if !f.begun && h.Seq < f.next {
		return true
	}
	f.begun = true
	s, marker := f.s, h.Ends && h.Closed
	if h.Seq < f.next || h.Seq > weir.MaxSeq && !marker || h.Lost && h.First > h.Seq {
		f.err = fmt.Errorf("entry %d is out of order: expected %d or above", h.Seq, f.next)
		return false
	}
	if f.found {
		f.err = fmt.Errorf("entry %d lies above the entry that closed the stream", h.Seq)
		return false
	}
	f.next = h.Seq + 1
	s.last = max(s.last, h.Time)
	record(s, h.Writer, h.Time)
	if h.Ends {
		s.ended, f.limit, f.found = true, f.next, true
	}
	switch {
	case marker:
		f.limit = h.Seq
	case h.Closed:
		f.markers = append(f.markers, h.Seq)
	case h.Lost:
		s.lose(*h, f.now)
	default:
		s.extend(h, f.now)
		s.bytes += int64(h.Size)
		s.charge += h.charge()
		if h.Key != (digest{}) {
			keysOf(s).collect(h)
		}
	}
	return true
}
