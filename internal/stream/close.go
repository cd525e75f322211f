package stream

import "weir"

// A stream is closed by its last entry (D37). This entry is a batch, or a marker (an entry that
// closes gaps) with the sequence above the cursor. In both cases Header.Ends is set. The entry
// closes all open gaps, so that subscribers receive everything that was stored and then learn that
// nothing more will come. A trim never removes the marker, because a trim removes no sequence above
// the cursor. If the entry is a batch, the checkpoint that is stored with a trim says that the
// stream was closed.

// Ended reports whether the stream was closed.
func Ended(s *State) bool { return s.ended }

// Closing returns the verdict on a request to close the stream. If the outcome is Stored, the
// header of the verdict is a marker. The caller makes it durable and then passes it to Apply. The
// parameter w is nil if no writer is named. If the stream is closed already, a request without a
// writer is a duplicate, and so is the repeated request of the writer that closed the stream. Other
// requests are refused.
func Closing(s *State, w *Writer, now weir.Time) Verdict {
	standing, done := judgeWriter(s, w)
	switch {
	case done.Outcome != 0:
		return done
	case s.ended && w != nil:
		return errEnded
	case s.ended:
		return Verdict{Outcome: Duplicate}
	}
	first := s.next()
	if g, waiting := s.gaps.firstOpen(); waiting {
		first = g.from
	}
	return Verdict{Outcome: Stored, Writer: standing, Header: Header{
		Closed: true, Ends: true, First: first, Seq: s.next(), Time: s.clock(now), Writer: w,
	}}
}

// end closes the open gaps and the stream.
func end(s *State) {
	if s.ever {
		s.gaps.close(s.cursor)
	}
	s.ended = true
}
