package stream

import "weir"

// Publish is a request to store a batch.
type Publish struct {
	Chosen     bool     // the client chose Seq; otherwise the batch gets the next sequence (D2)
	Seq        weir.Seq // the chosen sequence; ignored unless Chosen
	Contiguous bool     // refuse the batch if it would open a gap (D38); ignored unless Chosen
	Key        string   // idempotency key; ignored if Chosen (D25)
	Size       int64    // bytes of payload; -1 if the body has not been read yet
	Writer     *Writer  // who publishes the batch; nil if no writer is named; ignored if Chosen
	Ends       bool     // close the stream together with this batch (D37); ignored if Chosen
}

// Outcome is the result of a publish. The zero value is not a valid outcome.
type Outcome uint8

// The outcomes of a publish.
const (
	Stored    Outcome = iota + 1 // the batch is accepted: store it with the verdict's header
	Duplicate                    // the batch is already stored
	Refused                      // the verdict's Err says why
)

// Verdict is the decision on a publish.
type Verdict struct {
	Outcome Outcome
	Header  Header      // if Stored, the new entry; if Duplicate, Seq of the stored batch, and Key and Count if a key was repeated; zero if a writer repeated its numbers
	Err     *weir.Error // only set if Refused
	Writer  Standing    // if the publish has a writer, what the state knows about it
}

// Decide returns the verdict on a publish that would be the next entry of the log. It changes
// nothing that later verdicts depend on. It may be called before the body has been read, with Size
// -1. The header then has size 0. If the verdict at that point is a duplicate or a refusal, the
// body need not be read (D19).
//
// A gap stays open until a marker (a log entry that closes gaps) closes it, even if its grace
// period ended long ago. A client must not see a gap as closed before the marker is durable (D4).
func (s *State) Decide(p Publish, now weir.Time) Verdict {
	if !p.Chosen {
		return s.decideNext(p, now)
	}
	switch {
	case p.Seq > weir.MaxSeq: // D1
		return refused(weir.InvalidSequence, "sequence %d is above the highest possible, %d", p.Seq, weir.MaxSeq)
	case s.ended && s.Lookup(p.Seq) == Unknown:
		return errEnded
	case !s.ever && p.Seq == 0, p.Seq > s.cursor: // D3: a first batch with sequence 0, or any batch above the cursor
		if p.Contiguous && p.Seq > s.cursor+1 {
			return refused(weir.SequenceNotNext, "sequence %d is not the next one: the cursor is %d, and the batches in between are missing",
				p.Seq, s.cursor)
		}
		if p.Seq > s.cursor+weir.MaxAhead {
			return refused(weir.SequenceTooFarAhead, "sequence %d is more than %d above the cursor, which is %d",
				p.Seq, weir.MaxAhead, s.cursor)
		}
		return s.admit(p, p.Seq, now)
	case p.Seq < s.base():
		return refused(weir.InvalidSequence, "sequence 0 is closed: it can only be stored before any other")
	case p.Seq < s.low:
		return refused(weir.InvalidSequence, "sequence %d is below %d, the lowest that can still be kept: "+
			"it was evicted, or it was missing when a batch above it was evicted", p.Seq, s.low)
	}
	switch s.gaps.at(p.Seq) {
	case filled:
		if s.isLost(p.Seq) {
			return refused(weir.InvalidSequence, "sequence %d was stored once and is lost: the store was damaged", p.Seq)
		}
		return Verdict{Outcome: Duplicate, Header: Header{Seq: p.Seq}}
	case closed:
		return refused(weir.InvalidSequence, "sequence %d "+weir.InClosedGap+": "+
			"it was not stored within %s after a batch above it", p.Seq, s.rules.GapGrace)
	}
	return s.admit(p, p.Seq, now)
}

// decideNext assigns the sequence above the cursor (D2). If the idempotency key is known, the
// publish is a duplicate instead (D25).
func (s *State) decideNext(p Publish, now weir.Time) Verdict {
	var d digest
	if p.Key != "" {
		d = weir.DigestKey(p.Key)
		if k, ok := s.keys.find(d, s.clock(now)); ok {
			return Verdict{Outcome: Duplicate, Header: Header{Seq: k.seq(), Key: d, Count: k.count()}}
		}
	}
	standing, done := judgeWriter(s, p.Writer)
	if done.Outcome != 0 {
		return done
	}
	if s.ended {
		return errEnded
	}
	if s.cursor >= weir.MaxSeq {
		return refused(weir.InvalidSequence, "the stream is at the highest possible sequence, %d", weir.MaxSeq)
	}
	v := s.admit(p, s.cursor+1, now)
	if v.Writer = standing; v.Outcome == Stored {
		v.Header.Ends, v.Header.Writer = p.Ends, p.Writer
	}
	if v.Outcome == Stored && p.Key != "" {
		v.Header.Key, v.Header.KeySize = d, uint16(len(p.Key))
	}
	return v
}

// judgeWriter returns what the state knows about a writer. If this already decides about the
// publish, the second result is the verdict. Otherwise the second result is zero.
func judgeWriter(s *State, w *Writer) (Standing, Verdict) {
	if w == nil {
		return Standing{}, Verdict{}
	}
	duplicate, standing := s.wrote.judge(w)
	if duplicate {
		return standing, Verdict{Outcome: Duplicate, Writer: standing}
	}
	if standing.Conflict == NoConflict || s.ended && standing.Conflict != Fenced {
		return standing, Verdict{}
	}
	v := refused(weir.InvalidSequence, "the numbers of the writer do not continue those that are stored")
	v.Writer = standing
	return standing, v
}

// admit allows a publish to be stored under seq if it is not too large. The size is checked last,
// so that a retry of a stored batch is a duplicate whatever its size (D19).
func (s *State) admit(p Publish, seq weir.Seq, now weir.Time) Verdict {
	if p.Size > s.rules.MaxBytes {
		return refused(weir.PayloadTooLarge, "the batch is %d bytes, but the stream keeps at most %d (max_bytes)",
			p.Size, s.rules.MaxBytes)
	}
	if p.Size > weir.MaxBody {
		return refused(weir.PayloadTooLarge, "the batch is %d bytes, but the limit is %d", p.Size, weir.MaxBody)
	}
	return Verdict{Outcome: Stored, Header: Header{
		Seq:  seq,
		Time: s.clock(now),
		Size: uint32(max(p.Size, 0)),
		Late: late(s, seq),
	}}
}

// errEnded is the verdict on a publish to a closed stream (D37).
var errEnded = refused(weir.StreamClosed, "the stream is closed: it takes no more batches")

// late reports whether seq lies below the cursor, so that a batch stored under it fills a gap.
func late(s *State, seq weir.Seq) bool { return s.ever && seq < s.cursor }

func refused(code weir.Code, format string, args ...any) Verdict {
	return Verdict{Outcome: Refused, Err: weir.Errorf(code, format, args...)}
}
