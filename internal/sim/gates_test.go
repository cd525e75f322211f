package sim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"
)

// scheduler decides in which order the goroutines of a simulation continue.
type scheduler struct {
	rng   *rand.Rand
	start time.Time

	mu      sync.Mutex
	waiting []*waiter

	sum uint64 // hash of the trace, which lists all steps of the simulation
}

// waiter is a goroutine that waits at a gate, that is, in a call of the method gate.
type waiter struct {
	name string
	disk bool
	free chan error

	client *client // nil if the waiter is a disk call
	idle   bool    // the client waits between two requests
}

// gate blocks until the scheduler lets the caller go on. It returns the error with which the
// caller's disk call must fail. The name identifies the step in the trace. Of all goroutines that
// wait at the same time, no two may use the same name.
func (s *scheduler) gate(name string, c *client) error {
	w := &waiter{name, c == nil, make(chan error), c, c != nil && c.idle}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	return <-w.free
}

// settled waits until every goroutine is blocked, and returns those that wait at a gate, sorted by
// name. The order in which they arrived would depend on the Go scheduler.
func (s *scheduler) settled() []*waiter {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.waiting, func(a, b *waiter) int { return cmp.Compare(a.name, b.name) })
	return slices.Clone(s.waiting)
}

// release lets a waiter go on. Each step takes a millisecond, so that two steps do not set timers
// for the same time: such timers would fire in random order.
func (s *scheduler) release(w *waiter, err error) {
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(o *waiter) bool { return o == w })
	s.mu.Unlock()
	w.free <- err
	time.Sleep(time.Millisecond)
}

// note adds a line to the trace.
func (s *scheduler) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	h := fnv.New64a()
	fmt.Fprintf(h, "%x %d %s", s.sum, time.Since(s.start), line)
	s.sum = h.Sum64()
	if *traced {
		fmt.Printf("%10.3fs  %s\n", time.Since(s.start).Seconds(), line)
	}
}

// pass lets simulated time pass. Goroutines at gates stay there, which simulates slow disks and
// slow clients.
func (s *scheduler) pass(d time.Duration) {
	s.note("%v pass", d)
	time.Sleep(d)
}
