package stream

import (
	"slices"

	"weir"
)

// View is an immutable copy of the parts of a State that a subscription needs. Any number of
// goroutines may use a View without a lock while the State changes.
type View struct{ s State }

// View returns a view of the current state. Its cost depends only on the number of open gaps.
func (s *State) View() View {
	c := *s
	c.keys, c.wrote = nil, nil
	// The view needs no closed gaps, because a subscription reads across them.
	c.gaps = gaps{open: slices.Clone(s.gaps.open)}
	return View{c}
}

// Next does the same as State.Next.
func (v *View) Next(pos weir.Seq) Step { return v.s.Next(pos) }

// Low does the same as State.Low.
func (v *View) Low() weir.Seq { return v.s.Low() }
