package nodes

import (
	"slices"
	"testing"
	"time"
)

// A node compares its clock with the median of all clocks. If their number is even, the median is
// the earlier of the middle two.
func TestMedianClock(t *testing.T) {
	const h = time.Hour
	for name, c := range map[string]struct {
		others []time.Duration
		ahead  time.Duration
	}{
		"alone":                       {nil, 0},
		"another is ahead":            {[]time.Duration{h}, 0},
		"another is behind":           {[]time.Duration{-h}, h},
		"one of two others is ahead":  {[]time.Duration{h, 0}, 0},
		"one of two others is behind": {[]time.Duration{0, -h}, 0},
		"both others are ahead":       {[]time.Duration{h, h}, -h},
		"both others are behind":      {[]time.Duration{-h, -h}, h},
		"two of three are ahead":      {[]time.Duration{h, h, 0}, 0},
		"two of three are behind":     {[]time.Duration{0, -h, -h}, h},
	} {
		t.Run(name, func(t *testing.T) {
			var k clock
			k.init(time.Now)
			k.others = slices.Sorted(slices.Values(c.others))
			if _, got := k.read(); (got - c.ahead).Abs() > time.Minute {
				t.Errorf("%v ahead, want %v", got, c.ahead)
			}
		})
	}
}
