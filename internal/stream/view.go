package stream

import (
	"slices"

	"weir"
)

// View is what a subscription needs of a State, as it was when View was called. It does not change,
// so that any number of goroutines may use it without a lock while the state goes on.
type View struct{ s State }

// View returns the current view. Its cost grows with the number of open gaps, and with nothing
// else.
func (s *State) View() View {
	c := *s
	c.keys = keys{}
	c.gaps = gaps{open: slices.Clone(s.gaps.open)} // a subscription reads across closed gaps
	return View{c}
}

// Next is State.Next.
func (v *View) Next(next weir.Seq) Step { return v.s.Next(next) }

// Low is State.Low.
func (v *View) Low() weir.Seq { return v.s.Low() }
