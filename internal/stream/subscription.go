package stream

import "weir"

// From is the position at which a subscription starts (D15): Head, Oldest or After(n). The zero
// value is Head.
type From struct {
	place place
	after weir.Seq
}

type place uint8

const (
	head place = iota
	oldest
	after
)

var (
	// Head starts above the cursor, with the next batch that is published. In a stream in which no
	// batch was ever stored, Head delivers every batch.
	Head = From{place: head}
	// Oldest starts at the oldest kept batch. Its sequence may be 0.
	Oldest = From{place: oldest}
)

// After starts above sequence n. The sequence n may be higher than the cursor.
func After(n weir.Seq) From { return From{place: after, after: n} }

// Resolve returns the first sequence that a subscription wants (D15). If no batch was
// ever stored, Head and Oldest resolve to 0, because the first batch may be stored under 0.
func (s *State) Resolve(f From) weir.Seq {
	switch f.place {
	case oldest:
		return s.low
	case after:
		return f.after + 1
	}
	return s.next()
}

// StepKind is the kind of a Step.
type StepKind uint8

// The kinds of steps. They say what the subscription must do.
const (
	Wait StepKind = iota // wait: there is nothing to send until the state changes
	Gap                  // report the sequences First to Last as evicted, then continue at Last+1 (D16)
	Read                 // send the batches stored from First to Last, then continue at Last+1
	Loss                 // report the sequences First to Last as lost, then continue at Last+1
	End                  // say that the stream is closed, then end (D37)
)

// Step is the next thing for a subscription to do. First and Last are inclusive. For Wait and End
// both are zero.
type Step struct {
	Kind        StepKind
	First, Last weir.Seq
}

// Next returns the next step of a subscription at the position pos, which has received everything
// below pos. At an open gap the step is Wait, because a batch that fills the gap must be delivered
// before the batches above it (D4). Next ignores a gap that lies wholly below pos, because this
// subscription does not want the batches that may fill it. If the first batch of the stream was not
// stored under 0, Next skips sequence 0 without reporting a gap, because no batch was lost (D16).
func (s *State) Next(pos weir.Seq) Step {
	pos = max(pos, s.base())
	if pos < s.low {
		return Step{Gap, pos, s.low - 1}
	}
	if end := s.settled(pos); pos < end {
		return s.aroundLost(Step{Read, pos, end - 1})
	}
	if s.ended {
		return Step{Kind: End}
	}
	return Step{}
}

// settled returns the first sequence that a subscription at the position pos cannot read yet. This
// is the lowest sequence, from pos upwards, that lies in an open gap. If there is none, it is the
// sequence above the cursor.
func (s *State) settled(pos weir.Seq) weir.Seq {
	i := search(s.gaps.open, pos)
	if i == len(s.gaps.open) {
		return s.next()
	}
	return max(s.gaps.open[i].from, pos)
}
