package stream

import "fmt"

// CheckInvariants returns an error if the state is inconsistent: gaps are out of order or not
// between s.low and s.cursor, a closed gap lies above an open gap, an open gap is older than an
// open gap below it, or the queue of keys and its hash table do not agree.
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
		if i > 0 && s.gaps.open[i-1].graceStart > g.graceStart {
			return fmt.Errorf("open gap %+v is older than %+v below it", g, s.gaps.open[i-1])
		}
		next = g.to + 1
	}
	if len(s.gaps.closed)+len(s.gaps.open) > 0 && next > s.cursor {
		return fmt.Errorf("a gap ends at %d, the cursor is %d", next-1, s.cursor)
	}
	ks := s.keys
	if ks == nil {
		return nil
	}
	used := 0
	for _, slot := range ks.place.slots {
		if slot == 0 {
			continue
		}
		used++
		i := uint32(slot) - ks.queue.start()
		if int(i) >= ks.queue.len() || tagOf(ks.queue.index(int(i)).digest)>>32 != slot>>32 {
			return fmt.Errorf("a slot of the hash table points to index %d, which is outside the queue of %d keys or holds another key", i, ks.queue.len())
		}
	}
	if used != ks.place.used {
		return fmt.Errorf("the hash table has %d used slots, but counts %d", used, ks.place.used)
	}
	for i := 1; i < ks.queue.len(); i++ {
		k, before := ks.queue.index(i), ks.queue.index(i-1)
		if k.seq() <= before.seq() || k.time() < before.time() {
			return fmt.Errorf("the keys of batches %d and %d are out of order in the queue, by sequence or by time", k.seq(), before.seq())
		}
	}
	if n := ks.evicted(s.low); n > s.rules.Keys {
		return fmt.Errorf("%d keys of evicted batches are remembered, but the limit is %d", n, s.rules.Keys)
	}
	return nil
}

// Encoded returns the note of s: the encoded checkpoint that is stored when the log is trimmed,
// that is, when its lowest entries are removed.
func Encoded(s *State) []byte {
	c := s.Checkpoint(s)
	return c.Encode()
}
