package stream

import "fmt"

// CheckInvariants returns an error if the state is inconsistent: gaps out of order or outside low
// and cursor, closed gaps above open ones, open gaps whose times decrease with the sequence, or
// keys that cannot be found.
func (s *State) CheckInvariants() error {
	next := s.low
	for i, g := range s.gaps.closed {
		if i > 0 && s.gaps.closed[i-1].to+1 == g.from {
			return fmt.Errorf("closed gaps %+v and %+v touch", s.gaps.closed[i-1], g)
		}
		if g.from < next || g.to < g.from {
			return fmt.Errorf("closed gap %+v is out of order or empty", g)
		}
		next = g.to + 1
	}
	for i, g := range s.gaps.open {
		if g.from < next || g.to < g.from {
			return fmt.Errorf("open gap %+v is out of order or empty", g)
		}
		if i > 0 && s.gaps.open[i-1].since > g.since {
			return fmt.Errorf("open gap %+v is older than %+v below it", g, s.gaps.open[i-1])
		}
		next = g.to + 1
	}
	if len(s.gaps.closed)+len(s.gaps.open) > 0 && next > s.cursor {
		return fmt.Errorf("a gap ends at %d, the cursor is %d", next-1, s.cursor)
	}
	used := 0
	for _, slot := range s.keys.place.slots {
		if slot == 0 {
			continue
		}
		used++
		i := uint32(slot) - uint32(s.keys.gone)
		if int(i) >= len(s.keys.queue) || tagOf(s.keys.queue[i].digest)>>32 != slot>>32 {
			return fmt.Errorf("a key points to index %d of a queue of %d, or to another key", i, len(s.keys.queue))
		}
	}
	if used != s.keys.place.used {
		return fmt.Errorf("%d keys can be found, want %d", used, s.keys.place.used)
	}
	for i, k := range s.keys.queue {
		if k.seq < s.low {
			return fmt.Errorf("the key of batch %d is kept below low %d", k.seq, s.low)
		}
		if i > 0 && (k.seq <= s.keys.queue[i-1].seq || k.time < s.keys.queue[i-1].time) {
			return fmt.Errorf("the key of batch %d comes after that of %d", k.seq, s.keys.queue[i-1].seq)
		}
	}
	return nil
}
