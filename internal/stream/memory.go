package stream

// Memory returns about how many bytes the state takes.
func Memory(s *State) int64 {
	const alone = 512 // bytes of a state without gaps, keys and writers, and of the structures that refer to it
	return alone + Held(s)
}

// Held returns about how many bytes of the state's memory are for gaps, idempotency keys and writers.
func Held(s *State) int64 {
	const (
		gap = 24
		key = 32
	)
	gaps := cap(s.gaps.open) + cap(s.gaps.closed) + cap(s.lost)
	bytes := gaps*gap + s.wrote.size()
	if ks := s.keys; ks != nil {
		bytes += ks.queue.capacity()*key + len(ks.place.slots)*8
	}
	return int64(bytes)
}
