package sim

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var same = flag.Int("same", 24, "number of seeds for each of which TestSameTrace compares two histories")

// The same seed gives the same history in every process, alone or after other seeds. There is one
// known exception: if the operating system does not run the process for about ten milliseconds, the
// goroutines of a cluster sometimes run in another order. On a busy machine this changes a few
// clusters. The function steady prevents one cause; the other one is unknown. So a seed counts as
// different only if it differs again, and one of 24 seeds may differ.
func TestSameTrace(t *testing.T) {
	binary := program(t)
	from := uint64(time.Now().UnixNano()) % 1_000_000_000
	first, differ := checksums(t, binary, from, *same), 0
	for i, sum := range first {
		alone := func() string { return checksums(t, binary, from+uint64(i), 1)[0] }
		if sum != alone() && checksums(t, binary, from, *same)[i] != alone() {
			differ++
			c := flagged()
			c.seed = from + uint64(i)
			t.Logf("seed %d: the histories differ:\n%s", c.seed, difference(trace(t, binary, c), trace(t, binary, c)))
		}
	}
	t.Logf("%d of %d seeds gave the same history twice", len(first)-differ, len(first))
	if differ > max(1, *same/50) {
		t.Errorf("%d of %d seeds gave different histories", differ, len(first))
	}
}

// checksums runs simulations in a process of their own, and returns a checksum of each history.
func checksums(t *testing.T, binary string, from uint64, count int) (all []string) {
	args := []string{"-first", fmt.Sprint(from), "-seeds", fmt.Sprint(count), "-steps", fmt.Sprint(*steps), "-clients", fmt.Sprint(*clients), "-nodes", fmt.Sprint(*nodes), "-sums"}
	out, err := child(t.Context(), binary, args...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "sum ") {
			all = append(all, line)
		}
	}
	if err != nil || len(all) != count {
		t.Fatalf("%d checksums from seed %d on: %v\n%s", len(all), from, err, out)
	}
	return all
}

func trace(t *testing.T, binary string, c config) string {
	out, err := child(t.Context(), binary, append(c.args(), "-traced")...).CombinedOutput()
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", c.seed, err, out)
	}
	return string(out)
}

func difference(a, b string) string {
	la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(la), len(lb)) {
		if la[i] != lb[i] {
			return fmt.Sprintf("line %d of %d and %d\n%s\n--- %s\n+++ %s", i, len(la), len(lb), strings.Join(la[max(0, i-5):i], "\n"), la[i], lb[i])
		}
	}
	if len(la) == len(lb) {
		return "not this time"
	}
	return "one trace is longer than the other"
}
