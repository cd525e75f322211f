package nodes

import (
	"slices"
	"testing"
	"testing/synctest"
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

// While the third node is silent, its last known time shows which of the other two clocks is wrong.
func TestClockOfASilentNode(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct{ other, silent, ahead time.Duration }{
		"the other is behind":           {-day, 0, 0},
		"the other is ahead":            {day, 0, 0},
		"this node is ahead":            {-day, -day, day},
		"this node is behind":           {day, day, -day},
		"all differ, the other is late": {-day, day, day},
		"all differ, this node is late": {day, -day, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var k clock
				k.init(time.Now)
				for _, later := range []time.Duration{0, goneAfter / 2, goneAfter} { // c is silent from the second turn on
					time.Sleep(later)
					if later == 0 {
						k.hear("c", time.Now().Add(c.silent), false)
					}
					k.hear("b", time.Now().Add(c.other), false)
				}
				if _, got := k.read(); got != c.ahead {
					t.Errorf("%v ahead, want %v", got, c.ahead)
				}
				if _, present := k.aheads()["c"]; present {
					t.Error("a silent node counts as present")
				}
				time.Sleep(witnessFor)
				k.hear("b", time.Now().Add(c.other), false)
				if _, got := k.read(); got != max(0, -c.other) {
					t.Errorf("much later: %v ahead, want %v", got, max(0, -c.other))
				}
			})
		})
	}
}

// The clock of a node is the fastest of its last heartbeats. When a node has started again, the
// heartbeats of the process before do not count: the operator may have set its clock.
func TestClockOfARestartedNode(t *testing.T) {
	var k clock
	k.init(time.Now)
	for range clockSamples {
		k.hear("b", time.Now().Add(time.Hour), false)
	}
	k.hear("b", time.Now(), false)
	if got := k.aheads()["b"]; (got - time.Hour).Abs() > time.Minute {
		t.Errorf("the clock of a node with a late heartbeat is %v ahead, want an hour", got)
	}
	k.hear("b", time.Now(), true)
	if got := k.aheads()["b"]; got.Abs() > time.Minute {
		t.Errorf("after a restart, the clock of the node is %v ahead", got)
	}
}
