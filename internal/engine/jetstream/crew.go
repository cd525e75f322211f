package jetstream

import "sync/atomic"

// crew runs the workers of all logs. A worker ends when its log has nothing left to do, often after
// a single write, and its goroutine then waits for another log that needs a worker. A new goroutine
// has a small stack, which the runtime must copy to a larger one when the judge is asked: this took
// 2 % of the CPU time of a publish.
type crew struct {
	next  chan worker  // hands a worker to a goroutine that waits
	spare atomic.Int32 // number of goroutines that wait, or are about to
	over  <-chan struct{}
}

// worker is a log; see (*log).work.
type worker interface{ work() }

// spareMost is the maximum number of goroutines that wait for a worker.
const spareMost = 64

func newCrew(over <-chan struct{}) *crew { return &crew{next: make(chan worker), over: over} }

// start runs w.work in a goroutine. It never blocks.
func (c *crew) start(w worker) {
	select {
	case c.next <- w:
	default:
		go c.run(w)
	}
}

// run works for one log after the other. It ends when enough other goroutines wait, or when the
// channel over is closed.
func (c *crew) run(w worker) {
	for {
		w.work()
		if c.spare.Add(1) > spareMost {
			c.spare.Add(-1)
			return
		}
		select {
		case w = <-c.next:
			c.spare.Add(-1)
		case <-c.over:
			return
		}
	}
}
