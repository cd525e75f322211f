package sim

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var same = flag.Int("same", 24, "number of seeds for each of which TestSameTrace compares two histories")

// The same seed gives the same history in every process, alone or after other seeds, on a busy
// machine too. A seed counts as different only if it differs again.
func TestSameTrace(t *testing.T) {
	binary := program(t)
	from := uint64(time.Now().UnixNano()) % 1_000_000_000
	sameTraces(t, binary, from, *same, *nodes)
	if *nodes == 0 {
		sameTraces(t, binary, from, *same/4, 3) // the goroutines of three nodes can run in more orders than those of one
	}
}

func sameTraces(t *testing.T, binary string, from uint64, count, nodes int) {
	first, differ := checksums(t, binary, from, count, nodes), 0
	for i, sum := range first {
		alone := func() string { return checksums(t, binary, from+uint64(i), 1, nodes)[0] }
		if sum != alone() && checksums(t, binary, from, count, nodes)[i] != alone() {
			differ++
			c := flagged()
			c.seed, c.nodes = from+uint64(i), nodes
			t.Logf("seed %d, -nodes %d: the histories differ:\n%s", c.seed, nodes, difference(trace(t, binary, c), trace(t, binary, c)))
		}
	}
	// A rare seed may give two histories. If the product or the simulation depends on chance in
	// general, nearly all of them do.
	if differ > max(1, count/8) {
		t.Errorf("-nodes %d: %d of %d seeds give different histories", nodes, differ, count)
	}
	t.Logf("-nodes %d: %d of %d seeds gave the same history twice", nodes, count-differ, count)
}

// checksums runs simulations in a process of their own, and returns a checksum of each history.
func checksums(t *testing.T, binary string, from uint64, count, nodes int) (all []string) {
	args := []string{"-first", fmt.Sprint(from), "-seeds", fmt.Sprint(count), "-steps", fmt.Sprint(*steps), "-clients", fmt.Sprint(*clients), "-nodes", fmt.Sprint(nodes), "-sums"}
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
