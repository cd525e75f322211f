package stream_test

import (
	"iter"
	"slices"
	"sort"

	"weir"
	"weir/internal/stream"
)

// log is a minimal log: entries in increasing order of sequence, and the note that was stored with
// the last trim (the removal of the lowest entries).
type log struct {
	entries []stream.Header
	note    []byte
}

// failer is the common part of *testing.T and *rapid.T.
type failer interface {
	Fatalf(format string, args ...any)
}

// append stores an entry under its sequence. It fails the test if the log already has an entry with
// that sequence.
func (l *log) append(t failer, h stream.Header) {
	i := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].Seq >= h.Seq })
	if i < len(l.entries) && l.entries[i].Seq == h.Seq {
		t.Fatalf("two entries under sequence %d: %+v and %+v", h.Seq, l.entries[i], h)
	}
	l.entries = slices.Insert(l.entries, i, h)
}

func (l *log) trim(low weir.Seq, note []byte) {
	l.entries = slices.DeleteFunc(l.entries, func(h stream.Header) bool { return h.Seq < low })
	l.note = note
}

// spoil damages the entry with sequence seq. If the parameter known is true, only the payload is
// lost. Otherwise the whole entry is lost.
func (l *log) spoil(seq weir.Seq, known bool) {
	for i, h := range l.entries {
		if h.Seq == seq && known {
			l.entries[i] = stream.Header{First: h.Seq, Seq: h.Seq, Time: h.Time, Late: h.Late, Lost: true, Ends: h.Ends}
		} else if h.Seq == seq {
			l.entries = slices.Delete(l.entries, i, i+1)
			return
		}
	}
}

func (l *log) headers(from weir.Seq, visit func(stream.Header) bool) {
	i := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].Seq >= from })
	for _, h := range l.entries[i:] {
		if h.Key = (weir.KeyDigest{}); !visit(h) { // a real log keeps no keys in memory, only their sizes
			return
		}
	}
}

// all returns an iterator over all entries, as Restore needs it.
func (l *log) all() iter.Seq[*stream.Header] {
	return func(yield func(*stream.Header) bool) {
		for _, h := range l.entries {
			if !yield(&h) {
				return
			}
		}
	}
}

// batches returns the sequences of the batches from first to last.
func (l *log) batches(first, last weir.Seq) (found []weir.Seq) {
	l.headers(first, func(h stream.Header) bool {
		if h.Seq > last {
			return false
		}
		if !h.Closed {
			found = append(found, h.Seq)
		}
		return true
	})
	return found
}

// held lists the sequences for which requests are being received. Every caller of Due needs such a
// list.
type held []weir.Seq

// lowest returns the lowest held sequence that is missing in s and can still be filled, or
// NoneHeld.
func (h held) lowest(s *stream.State) weir.Seq {
	lowest := stream.NoneHeld
	for _, seq := range h {
		if s.Awaits(seq) {
			lowest = min(lowest, seq)
		}
	}
	return lowest
}

// release ends a request for seq.
func (h *held) release(seq weir.Seq) {
	if i := slices.Index(*h, seq); i >= 0 {
		*h = slices.Delete(*h, i, i+1)
	}
}

// elapse tells the state that time has passed. If a sequence is held, the grace (the time in which
// a missing sequence can still be filled) of the lowest held sequence and of all sequences above it
// is paused meanwhile.
func (h held) elapse(s *stream.State, from, to weir.Time) {
	if lowest := h.lowest(s); to > from && lowest != stream.NoneHeld {
		s.Pause(lowest, from, to)
	}
}
