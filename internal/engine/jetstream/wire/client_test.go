package wire

import (
	"testing"
	"time"
)

// Waits that begin together end at different times, and no wait is longer than Patience.
func TestWaitsDiffer(t *testing.T) {
	c := &Client{Patience: time.Second}
	pauses, limits := map[time.Duration]bool{}, map[time.Duration]bool{}
	for range 500 {
		p, d := c.Apart(time.Second), c.Limit()
		if p < time.Second || p > 1002*time.Millisecond || d > time.Second || d < 998*time.Millisecond || pauses[p] || limits[d] {
			t.Fatalf("waits of about a second last %v and %v, after %v and %v", p, d, pauses, limits)
		}
		pauses[p], limits[d] = true, true
	}
}
