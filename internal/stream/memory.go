package stream

// Memory returns about how many bytes the state takes. They grow with its gaps and idempotency
// keys.
func Memory(s *State) int64 {
	const (
		alone = 512 // the state without gaps and keys, and what refers to it
		gap   = 24
		key   = 32
	)
	gaps := cap(s.gaps.open) + cap(s.gaps.closed) + cap(s.lost)
	return int64(alone + gaps*gap + s.keys.queue.capacity()*key + len(s.keys.place.slots)*8)
}
