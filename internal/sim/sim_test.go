package sim

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
)

var (
	seed  = flag.Uint64("sim.seed", 0, "run this seed only, and print its trace")
	seeds = flag.Int("sim.seeds", 50, "number of seeds")
	first = flag.Uint64("sim.first", 1, "first seed")
	steps = flag.Int("sim.steps", 1500, "number of steps of a simulation")
)

// simulate runs one simulation.
func simulate(t *testing.T, c config) (violation, trace string, sum uint64) {
	synctest.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, c.seed)
		w := newWorld(t, c)
		violation = w.run()
		trace, sum = w.trace.String(), w.sum
	})
	return violation, trace, sum
}

func TestSim(t *testing.T) {
	c := config{steps: *steps, clients: 12, crashes: true, faults: true}
	if *seed != 0 {
		c.seed = *seed
		violation, trace, _ := simulate(t, c)
		fmt.Fprint(os.Stdout, trace)
		if violation != "" {
			t.Error(violation)
		}
		return
	}
	for i := range *seeds {
		c.seed = *first + uint64(i)
		if violation, _, _ := simulate(t, c); violation != "" {
			t.Errorf("seed %d: %s", c.seed, violation)
		}
	}
}

// The same seed gives the same history.
func TestSameTrace(t *testing.T) {
	for i := range 20 {
		c := config{seed: *first + uint64(i), steps: *steps, clients: 12, crashes: true, faults: true}
		_, trace, sum := simulate(t, c)
		for range 3 {
			if _, other, again := simulate(t, c); again != sum {
				t.Errorf("seed %d: the histories differ:\n%s", c.seed, difference(trace, other))
				break
			}
		}
	}
}

func difference(a, b string) string {
	la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(la), len(lb)) {
		if la[i] != lb[i] {
			return fmt.Sprintf("line %d of %d and %d\n%s\n--- %s\n+++ %s", i, len(la), len(lb), strings.Join(la[max(0, i-5):i], "\n"), la[i], lb[i])
		}
	}
	return "one is longer"
}
