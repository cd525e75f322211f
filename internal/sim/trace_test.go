package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The same seed gives the same history in every process. About one seed in 300 still differs: the
// journal sometimes writes two entries in one group and sometimes in two, for a reason that is not
// known yet. So the test fails only if two of five seeds differ.
func TestSameTrace(t *testing.T) {
	binary := program(t)
	from := uint64(time.Now().UnixNano()) % 1_000_000_000
	differ := 0
	for i := range uint64(5) {
		c := flagged()
		c.seed, c.nodes = from+i, 1+int(i)/4 // one of the seeds with two nodes
		var traces []string
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			out, err := child(ctx, binary, append(c.args(), "-traced")...).CombinedOutput()
			cancel()
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", c.seed, err, out)
			}
			traces = append(traces, string(out))
		}
		for _, other := range traces[1:] {
			if other != traces[0] {
				t.Logf("seed %d: the histories differ:\n%s", c.seed, difference(traces[0], other))
				differ++
				break
			}
		}
	}
	if differ > 1 {
		t.Errorf("%d of 5 seeds gave different histories", differ)
	}
}

func difference(a, b string) string {
	la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(la), len(lb)) {
		if la[i] != lb[i] {
			return fmt.Sprintf("line %d of %d and %d\n%s\n--- %s\n+++ %s", i, len(la), len(lb), strings.Join(la[max(0, i-5):i], "\n"), la[i], lb[i])
		}
	}
	return "one trace is longer than the other"
}
