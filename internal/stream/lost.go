package stream

import (
	"fmt"
	"iter"

	"weir"
)

// A lost batch was stored, acknowledged and perhaps delivered, but could not be read when the store
// was repaired. It stays in the log as an entry without payload, so that its sequence is never used
// again, the cursor does not decrease, and subscribers learn of the loss. It expires and is evicted
// like any other batch.

// lose adds a run of lost batches above all other entries. If the run overlaps stored batches, lose
// adds only the part above them.
func (s *State) lose(h Header, now weir.Time) {
	from := max(h.First, s.next())
	s.extend(&Header{Seq: from, Time: h.Time}, now)
	s.cursor = h.Seq
	if n := len(s.lost); n > 0 && s.lost[n-1].to+1 == from {
		s.lost[n-1].to = h.Seq
		return
	}
	s.lost = append(s.lost, gap{from: from, to: h.Seq})
}

func (s *State) isLost(seq weir.Seq) bool {
	i := search(s.lost, seq)
	return i < len(s.lost) && s.lost[i].from <= seq
}

// dropLost forgets the lost batches below the low mark.
func (s *State) dropLost() {
	s.lost = release(s.lost, search(s.lost, s.low))
}

// aroundLost shortens a Read step so that it ends before the next lost batch. If the step starts at
// a lost batch, it becomes a Loss step.
func (s *State) aroundLost(step Step) Step {
	i := search(s.lost, step.First)
	if i == len(s.lost) || s.lost[i].from > step.Last {
		return step
	}
	if l := s.lost[i]; l.from > step.First {
		step.Last = l.from - 1
	} else {
		step.Kind, step.Last = Loss, min(l.to, step.Last)
	}
	return step
}

// Mend computes how to repair a log that lost some of its entries, so that Restore accepts it and
// no sequence is used twice.
//
// The parameter low is the sequence below which the last trim removed everything from the log. The
// parameter note is the checkpoint that was stored with this trim, or nil if it was lost. The
// parameter entries holds the headers that are left. The field Lost is set in the header of a batch
// whose payload is known to be lost. The parameter unknown is the number of further entries that
// may have been lost without a trace.
//
// Mend returns a checkpoint to store with the trim, and runs of lost batches to add to the log. The
// runs cover every sequence that a lost entry may have had. A publisher may skip sequences up to a
// limit (D3), and each unknown entry may have skipped that many, so the runs can be long.
func Mend(r Rules, created weir.Time, low weir.Seq, note []byte, entries iter.Seq[*Header], unknown int, now weir.Time) ([]byte, []Header, error) {
	s := New(r, created)
	if note != nil && s.load(note) != nil {
		s, note = New(r, created), nil
	}
	stored := s.next() // according to the checkpoint, sequences below this one may have been used
	ended := s.ended
	if note == nil && low > 0 {
		s.ever, s.low, s.cursor = true, low, low-1
	}
	if s.low > 0 {
		s.cursor = s.low - 1
	} else {
		s.ever = false
	}
	f := fold(s, now)
	entries(f.Add)
	if f.err != nil {
		return nil, nil, fmt.Errorf("surviving entries do not form a log: %w", f.err)
	}
	limit := f.limit
	if ended { // the stream was closed when the checkpoint was stored, so no batch was stored later
		limit = min(limit, stored)
	}
	for _, through := range f.markers {
		s.gaps.close(min(through, s.cursor))
		stored = max(stored, through+2) // a gap is closed only below a stored batch, so the sequence above the gap was used
	}
	var lost []Header
	give := func(from, to weir.Seq) {
		lost = append(lost, Header{First: from, Seq: to, Time: s.clock(now), Lost: true})
	}
	if unknown > 0 {
		for _, g := range s.gaps.open {
			give(g.from, g.to)
		}
	}
	top := s.next()
	if !s.ever {
		top = 1 // not 0: if sequence 0 is missing, it counts as closed and is not reported as lost (D4)
	}
	if end := min(max(stored, top+leap(top, unknown)), limit); end > top {
		give(top, end-1)
		s.ever, s.cursor, s.stored, s.last = true, end-1, s.clock(now), s.clock(now)
	}
	s.stored = min(s.stored, s.last)
	c := s.Checkpoint(s)
	return c.Encode(), lost, nil
}

// leap returns the largest distance above top that this number of batches can have reached. The
// result is at most half of the remaining sequences, so that clients can still publish to the
// stream. No real stream gets near that limit.
func leap(top weir.Seq, batches int) weir.Seq {
	room := (weir.MaxSeq - min(top, weir.MaxSeq)) / 2
	if weir.Seq(batches) > room/weir.MaxAhead {
		return room
	}
	return weir.Seq(batches) * weir.MaxAhead
}
