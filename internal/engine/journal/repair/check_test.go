package repair

import (
	"testing"

	"weir/internal/engine/journal/segments"
)

// The groups of a cold segment are numbered from 1. So the number of the first group in the next
// segment does not prove that a segment without a valid group was empty.
func TestLostColdSegment(t *testing.T) {
	c := &checkup{harmed: map[uint64]*segments.Inspection{}}
	c.checkEnd(&segments.Inspection{Seg: &segments.Segment{Number: 5}}, 6, 1)
	if len(c.holes) != 1 || c.holes[0].Fate != Unknown {
		t.Errorf("damages %+v, want one with unknown content", c.holes)
	}
}
