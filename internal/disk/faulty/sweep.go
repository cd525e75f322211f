package faulty

// Under the race detector, a sweep (see Cases) runs only every 23rd case. The number 23 has no
// factor in common with the number of loss patterns, so all patterns occur.
const sparse = 23

// Cases returns how many of n cases a sweep runs. A sweep is a test that damages or crashes one disk
// after another and opens each, or calls one piece of code many times in a single goroutine. Under
// the race detector, each case takes ten times as long, so Cases returns only a part of n. All cases
// run the same code in the same goroutines, so further cases would find no further data races.
// tools/test runs the packages with sweeps without the race detector too, and then Cases returns n.
func Cases(n int) int {
	if raced {
		return (n + sparse - 1) / sparse
	}
	return n
}

// LeftOut reports whether a sweep leaves out its case i. Of n cases, about Cases(n) remain.
func LeftOut(i int) bool { return i%Step() != 0 }

// Step returns the distance between two cases that a sweep runs, for a sweep that does not know the
// number of its cases.
func Step() int {
	if raced {
		return sparse
	}
	return 1
}
