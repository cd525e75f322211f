package sim

import (
	"strings"
	"testing"
)

// The seed decides the size of a simulation, and the command that repeats a simulation says only what
// differs from that.
func TestSize(t *testing.T) {
	total := 0
	for seed := uint64(1); seed <= 2000; seed++ {
		c := config{seed: seed}.complete()
		if c.steps < 150 || c.steps > 3000 || c.clients < 4 || c.clients > 20 || c.nodes < 1 || c.nodes > 3 {
			t.Fatalf("seed %d: %+v", seed, c)
		}
		if args := c.args(); len(args) != 2 {
			t.Fatalf("seed %d: its flags are %v, want -seed only", seed, args)
		}
		total += c.steps
	}
	if mean := total / 2000; mean < 400 || mean > 600 {
		t.Errorf("a simulation has %d steps on average, want about 500", mean)
	}
	c := config{seed: 8, steps: 20, clients: 2, nodes: 1, without: []string{"keys"}}
	if got, want := strings.Join(c.args(), " "), "-seed 8 -steps 20 -clients 2 -nodes 1 -without keys"; got != want {
		t.Errorf("the flags are %q, want %q", got, want)
	}
}
