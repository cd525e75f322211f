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
	// Head is above the cursor: what is published from here on.
	Head = From{place: head}
	// Oldest is at the oldest batch kept, sequence 0 included.
	Oldest = From{place: oldest}
)

// After is above sequence n, which may lie in the future.
func After(n weir.Seq) From { return From{place: after, after: n} }

// Resolve returns the first sequence that a subscription wants. On a stream without batches Head wants 1, because a
// stored 0 is behind it, and Oldest wants 0 (D15).
func (s *State) Resolve(f From) weir.Seq {
	switch f.place {
	case oldest:
		return s.low
	case after:
		return f.after + 1
	}
	return s.cursor + 1
}

// StepKind says what a subscription does next.
type StepKind uint8

// The kinds of steps.
const (
	Wait StepKind = iota // there is nothing to send until the state changes
	Gap                  // tell that First to Last was evicted, go on at Last+1 (D16)
	Read                 // First to Last is final: send what is stored there, go on at Last+1
	Loss                 // tell that First to Last was lost, go on at Last+1
)

// Step is what a subscription does next. First and Last are inclusive, and not set for Wait.
type Step struct {
	Kind        StepKind
	First, Last weir.Seq
}

// Next returns the step of a subscription that wants the sequence next and has everything below it. At an open gap
// it waits, because what fills it comes first (D4). Sequence 0 is skipped in silence when another was stored before
// it: nothing was lost (D16).
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
