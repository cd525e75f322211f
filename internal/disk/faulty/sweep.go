package faulty

// Under the race detector, a sweep (see Cases) runs only every 23rd case. The number 23 has no
// factor in common with the number of loss patterns, so all patterns occur.
const sparse = 23

// Cases returns how many of n cases a sweep runs. A sweep is a test that damages or crashes one disk
// after another and opens each. Under the race detector, Cases returns only a part of n: all cases
// take the same goroutines through the same code, so more of them would find no other data races,
// and each takes ten times as long. tools/test runs the packages with sweeps without the race
// detector too, and then Cases returns n.
func Cases(n int) int {
	if raced {
		return (n + sparse - 1) / sparse
	}
	return n
}

// LeftOut reports whether a sweep leaves out its case i. Of n cases, about Cases(n) remain.
func LeftOut(i int) bool { return raced && i%sparse != 0 }
