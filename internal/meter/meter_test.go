package meter

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestBounds(t *testing.T) {
	for name, b := range map[string]Bounds{"Latencies": Latencies, "Sizes": Sizes} {
		if !slices.IsSorted(b[:]) || b[0] <= 0 {
			t.Errorf("%s: %v is not positive and sorted", name, b)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h, other Histogram
	h.Observe(&Sizes, 1, 1)     // at a bound, which is inclusive
	h.Observe(&Sizes, 2, 3)     // three values at once
	h.Observe(&Sizes, 3, 1)     // between two bounds
	h.Observe(&Sizes, 32768, 1) // at the last bound
	h.Observe(&Sizes, 32769, 1) // above all bounds
	h.Observe(&Sizes, -5, 1)    // counts as 0
	other.Observe(&Sizes, math.MaxInt32, 2)
	var d Distribution
	d.Add(&h)
	d.Add(&other)
	want := Distribution{Sum: 1 + 3*2 + 3 + 32768 + 32769 + 2*math.MaxInt32}
	want.Counts[0], want.Counts[1], want.Counts[2], want.Counts[15], want.Counts[16] = 2, 3, 1, 1, 3
	if d != want {
		t.Errorf("got %v, want %v", d, want)
	}
	if d.Count() != 10 {
		t.Errorf("Count is %d, want 10", d.Count())
	}
}

func TestNow(t *testing.T) {
	a := Now()
	b := At(time.Now())
	if c := Now(); a < 0 || b < a || c < b {
		t.Errorf("the clock ran backwards: %d, then %d, then %d", a, b, c)
	}
}

func BenchmarkObserve(b *testing.B) {
	var h Histogram
	for b.Loop() {
		h.Observe(&Latencies, 700_000, 1)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
