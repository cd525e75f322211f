package stream

import "weir"

// From is where a subscription starts (D15): Head, Oldest or After(n). The zero value is Head.
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
	// Head starts above the cursor, with the next batch that is published.
	Head = From{place: head}
	// Oldest starts at the oldest kept batch, which may have sequence 0.
	Oldest = From{place: oldest}
)

// After starts above sequence n, which may be above the cursor.
func After(n weir.Seq) From { return From{place: after, after: n} }

// Resolve returns the first sequence that a subscription wants. On a stream without batches, Head
// resolves to 1, so it skips a batch that is later stored under 0, and Oldest resolves to 0 (D15).
func (s *State) Resolve(f From) weir.Seq {
	switch f.place {
	case oldest:
		return s.low
	case after:
		return f.after + 1
	}
	return s.cursor + 1
}

// StepKind is the kind of a Step.
type StepKind uint8

// The kinds of steps.
const (
	Wait StepKind = iota // nothing to send until the state changes
	Gap                  // report First to Last as evicted, continue at Last+1 (D16)
	Read                 // send the batches stored from First to Last, continue at Last+1
	Loss                 // report First to Last as lost, continue at Last+1
)

// Step is the next thing for a subscription to do. First and Last are inclusive; Wait leaves them
// zero.
type Step struct {
	Kind        StepKind
	First, Last weir.Seq
}

// Next returns the next step of a subscription that has received everything below the sequence
// next. It waits at an open gap, because a batch that fills the gap must be delivered first (D4).
// It skips sequence 0 without reporting a gap if another sequence was stored first, because no
// batch was lost (D16).
func (s *State) Next(next weir.Seq) Step {
	next = max(next, s.base())
	if next < s.low {
		return Step{Gap, next, s.low - 1}
	}
	if final := s.Final(); next < final {
		return s.aroundLost(Step{Read, next, final - 1})
	}
	return Step{}
}
