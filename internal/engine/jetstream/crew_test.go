package jetstream

import (
	"testing"
	"testing/synctest"
)

// job is a worker that waits for a signal before it ends.
type job struct{ begun, end chan struct{} }

func newJob() *job { return &job{make(chan struct{}), make(chan struct{})} }

func (j *job) work() {
	close(j.begun)
	<-j.end
}

// Workers run at the same time, at most spareMost goroutines stay behind, and these take the next
// workers and end with the engine. If one of them did not end, synctest would report it.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		c := newCrew(over)
		for range 2 {
			var all []*job
			for range spareMost + 10 {
				j := newJob()
				c.start(j)
				all = append(all, j)
			}
			for _, j := range all {
				<-j.begun
			}
			synctest.Wait()
			if n := c.spare.Load(); n != 0 {
				t.Fatalf("%d goroutines wait while there is work for all", n)
			}
			for _, j := range all {
				close(j.end)
			}
			synctest.Wait()
			if n := c.spare.Load(); n != spareMost {
				t.Fatalf("%d goroutines wait, want %d", n, spareMost)
			}
		}
		j := newJob()
		c.start(j)
		<-j.begun
		if n := c.spare.Load(); n != spareMost-1 {
			t.Fatalf("%d goroutines wait, want %d: a waiting goroutine takes the worker", n, spareMost-1)
		}
		close(over)
		close(j.end)
	})
}
