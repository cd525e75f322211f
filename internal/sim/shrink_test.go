package sim

import (
	"regexp"
	"slices"
	"testing"
	"time"
)

// shrinkRuns bounds the number of simulations that shrink runs.
const shrinkRuns = 150

// shrink makes a failing simulation smaller: it leaves out features, clients and steps as long as a
// violation of the same kind remains. Leaving something out changes the rest of the history too, so
// shrink tries each smaller simulation with a few seeds.
func shrink(t *testing.T, program string, c config, message string) (config, string) {
	c = c.complete() // another seed would decide something else
	left, until := shrinkRuns, time.Now().Add(5*time.Minute)
	kind := kindOf(message)
	try := func(smaller config) bool {
		for i := range uint64(4) {
			if left--; left < 0 || time.Now().After(until) { // time is limited too, because a simulation that hangs takes minutes
				return false
			}
			again := smaller
			again.seed += i
			if bad := launch(t, program, again, false); bad != "" && kindOf(bad) == kind {
				c, message = again, bad
				return true
			}
		}
		return false
	}
	for _, name := range features {
		if !slices.Contains(c.without, name) {
			smaller := c
			smaller.without = append(slices.Clone(c.without), name)
			try(smaller)
		}
	}
	for _, factor := range []int{2, 2, 2, 4, 4, 8} { // leave out 1/factor of the steps or clients
		smaller := c
		smaller.steps -= c.steps / factor
		try(smaller)
		smaller = c
		smaller.clients -= max(1, c.clients/factor)
		try(smaller)
	}
	return c, message
}

var numbers = regexp.MustCompile(`[0-9]+|p[0-9]+-\S*`)

// kindOf returns the beginning of a message without its numbers.
func kindOf(message string) string {
	kind := numbers.ReplaceAllString(message, "#")
	return kind[:min(len(kind), 50)]
}
