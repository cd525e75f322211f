package weir

import (
	"testing"
	"testing/cryptotest"
	"time"
)

func TestJitter(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	seen := map[time.Duration]int{}
	for range 1000 {
		seen[Jitter(3)]++
	}
	for d := range time.Duration(4) {
		if seen[d] < 200 {
			t.Errorf("of 1,000 durations from 0 to 3 ns, %d are %d ns", seen[d], d)
		}
	}
	if len(seen) != 4 {
		t.Errorf("durations outside of 0 to 3 ns: %v", seen)
	}
}
