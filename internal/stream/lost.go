package stream

import (
	"fmt"
	"iter"

	"weir"
)

// A lost batch was stored, acknowledged and perhaps delivered, and could not be read any more when the store was
// repaired. It stays in the log as an entry without payload, so that its sequence is never used again, the cursor does
// not go down, and subscribers are told. It ages and is evicted like any other.

// lose takes over a run of lost batches, above all others. It covers no batch that is there: the run begins above it.
func (s *State) lose(h Header, now weir.Time) {
	from := max(h.First, s.next())
	s.extend(Header{Seq: from, Time: h.Time}, now)
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

// dropLost forgets what lies below the low mark.
func (s *State) dropLost() {
	s.lost = release(s.lost, search(s.lost, s.low))
}

// aroundLost ends a step before the next lost batch, or makes it one that tells of it.
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

// Mend says what a log needs that lost some of its entries, so that Restore takes it and no sequence is used twice. It
// gets the mark's low and checkpoint (nil when that is lost), the entries that are left, those known to be lost among
// them, and how many entries may be lost beside those: nobody knows which. It returns a checkpoint for the mark and runs of
// lost batches to be added, over every sequence that something may have been stored under. Each batch may have been as far
// above the one before it as a publisher can leap (D3).
func Mend(r Rules, created weir.Time, low weir.Seq, note []byte, entries iter.Seq[Header], unknown int, now weir.Time) ([]byte, []Header, error) {
	s := New(r, created)
	if note != nil && s.load(note) != nil {
		s, note = New(r, created), nil
	}
	stored := s.next() // by the checkpoint, everything below it was
	if note == nil && low > 0 {
		s.ever, s.low, s.cursor = true, low, low-1
	}
	if s.low > 0 {
		s.cursor = s.low - 1
	} else {
		s.ever = false
	}
	markers, err := s.fold(entries, now)
	if err != nil {
		return nil, nil, fmt.Errorf("what is left is no log: %w", err)
	}
	for _, through := range markers {
		s.gaps.close(min(through, s.cursor))
		stored = max(stored, through+2) // a gap is below something that was stored
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
		top = 1 // a missing 0 is closed
	}
	if end := min(max(stored, top+leap(top, unknown)), weir.MaxSeq+1); end > top {
		give(top, end-1)
		s.ever, s.cursor, s.stored, s.last = true, end-1, s.clock(now), s.clock(now)
	}
	s.stored = min(s.stored, s.last)
	return s.Checkpoint(), lost, nil
}

// leap is how far above everything that is left so many batches can have gone. Half of the sequences there are stay for
// what comes: no stream gets near them otherwise.
func leap(top weir.Seq, batches int) weir.Seq {
	room := (weir.MaxSeq - min(top, weir.MaxSeq)) / 2
	if weir.Seq(batches) > room/weir.MaxAhead {
		return room
	}
	return weir.Seq(batches) * weir.MaxAhead
}
