package stream

import "weir"

// A stream is closed by its last entry (D37). This entry is a marker whose sequence is the one above
// the cursor, or a batch. In both cases Header.Ends is set. The entry closes all open gaps, so that
// subscribers receive everything that was stored and then learn that nothing more will come. A
// marker is never trimmed, because the low mark never rises above its sequence. If the entry is a
// batch, the checkpoint remembers that the stream was closed.

// Ended reports whether the stream was closed.
func Ended(s *State) bool { return s.ended }

// ClosingMarker returns the marker that closes the stream. The second result is false if the stream is closed
// already. The caller makes the marker durable and then passes it to Apply.
func ClosingMarker(s *State, now weir.Time) (marker Header, ok bool) {
	if s.ended {
		return Header{}, false
	}
	first := s.next()
	if g, waiting := s.gaps.firstOpen(); waiting {
		first = g.from
	}
	return Header{Closed: true, Ends: true, First: first, Seq: s.next(), Time: s.clock(now)}, true
}

// end closes the open gaps and the stream.
func end(s *State) {
	if s.ever {
		s.gaps.close(s.cursor)
	}
	s.ended = true
}
