package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// scheduler decides in which order the goroutines of a simulation continue.
type scheduler struct {
	rng   *rand.Rand
	start time.Time

	mu      sync.Mutex
	waiting []*waiter // sorted by name; the order in which they arrived depends on the Go scheduler
	spare   []*waiter // waiters that have gone on, for reuse

	list []*waiter // what the method settled has returned
	sum  uint64    // hash of the trace, which lists all steps of the simulation
	text []byte    // the last line of the trace
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
	s.mu.Lock()
	if len(s.spare) == 0 {
		s.spare = append(s.spare, &waiter{free: make(chan error)})
	}
	last := len(s.spare) - 1
	w := s.spare[last]
	s.spare = s.spare[:last]
	w.name, w.disk, w.client, w.idle = name, c == nil, c, c != nil && c.idle
	at, _ := slices.BinarySearchFunc(s.waiting, name, func(o *waiter, name string) int { return strings.Compare(o.name, name) })
	s.waiting = slices.Insert(s.waiting, at, w)
	s.mu.Unlock()
	return <-w.free
}

// settled waits until every goroutine is blocked, and returns those that wait at a gate, sorted by
// name. The slice is valid until the next call.
func (s *scheduler) settled() []*waiter {
	synctest.Wait()
	runtime.Gosched() // nothing else can run, but for the Go runtime a new time slice begins
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list[:0], s.waiting...)
	return s.list
}

// release lets a waiter go on.
func (s *scheduler) release(w *waiter, err error) {
	s.mu.Lock()
	at := slices.Index(s.waiting, w)
	s.waiting = slices.Delete(s.waiting, at, at+1)
	s.mu.Unlock()
	w.free <- err
	s.mu.Lock()
	s.spare = append(s.spare, w)
	s.mu.Unlock()
	s.sleep(time.Millisecond)
}

// sleep lets simulated time pass, and a nanosecond more. So no two steps are the same number of
// milliseconds apart, and timers that are set in different steps never end at the same time: such
// timers would fire in random order.
func (s *scheduler) sleep(d time.Duration) { time.Sleep(d + 1) }

// note adds a line to the trace.
func (s *scheduler) note(format string, args ...any) { s.line(fmt.Sprintf(format, args...)) }

// line does the same as note, for a line that needs no formatting.
func (s *scheduler) line(line string) {
	at := time.Since(s.start)
	s.text = strconv.AppendUint(s.text[:0], s.sum, 16)
	s.text = append(strconv.AppendInt(append(s.text, ' '), int64(at), 10), ' ')
	s.text = append(s.text, line...)
	s.sum = hash(s.text)
	if *traced {
		s.show(line)
	}
}

// show prints a line with the simulated time.
func (s *scheduler) show(line string) {
	fmt.Printf("%10.3fs  %s\n", time.Since(s.start).Seconds(), line)
}

// hash returns the 64-bit FNV-1a hash of a text.
func hash[T string | []byte](text T) uint64 {
	sum := uint64(14695981039346656037)
	for i := range len(text) {
		sum = (sum ^ uint64(text[i])) * 1099511628211
	}
	return sum
}

// pass lets simulated time pass. Goroutines at gates stay there, which simulates slow disks and
// slow clients.
func (s *scheduler) pass(d time.Duration) {
	s.line(d.String() + " pass")
	s.sleep(d)
}
