package journal

import (
	"runtime"
	"sync"
	"time"

	"weir/internal/engine"
)

// op is something that the committer does in its order: an append, a change of a document, a trim, a copy made by
// reclaiming, a change of the manifest.
type op interface {
	// bound returns the most that the op will write, in bytes and in records.
	bound() (bytes, records int)
	// deletes marks what is let into the space that is kept for deleting on a full disk.
	deletes() bool
	// stage decides what becomes of the op at its place in the order, and adds its records to the group.
	stage(g *group)
	// settle is called after the group was synced, in order: memory catches up with the disk.
	settle()
	// finish tells whoever waits.
	finish(err error)
}

// queue is what waits for the committer.
type queue struct {
	mu     sync.Mutex
	ops    []op
	spare  []op
	closed bool
	enough int // of the committer: how many make a good group
	signal chan struct{}
}

func (q *queue) init() { q.signal = make(chan struct{}, 1) }

// add puts an op at the end; false when the journal is closed.
func (q *queue) add(o op) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	first := len(q.ops) == 0
	q.ops = append(q.ops, o)
	q.mu.Unlock()
	if first {
		q.wake()
	}
	return true
}

func (q *queue) wake() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.wake()
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ops)
}

// gather lets runnable goroutines run until the queue stops growing, or holds half of what was last taken: those that
// are being told of their last append are about to make the next one, and a sync for many costs little more than a
// sync for one. Half, because the other half is then made while the disk works.
func (q *queue) gather() {
	for n := q.len(); n < q.enough; {
		runtime.Gosched()
		m := q.len()
		if m <= n {
			return
		}
		n = m
	}
}

// take waits for ops and returns all of them. After quiet without any it returns none, and open stays true.
func (q *queue) take(quiet time.Duration) (ops []op, open bool) {
	var timer <-chan time.Time
	for {
		q.mu.Lock()
		if len(q.ops) > 0 {
			q.mu.Unlock()
			q.gather()
			q.mu.Lock()
			ops, q.ops = q.ops, q.spare[:0]
			q.spare = nil
			q.mu.Unlock()
			q.enough = max(len(ops)/2, q.enough/2, 8)
			return ops, true
		}
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return nil, false
		}
		if timer == nil && quiet > 0 {
			t := time.NewTimer(quiet)
			defer t.Stop()
			timer = t.C
		}
		select {
		case <-q.signal:
		case <-timer:
			return nil, true
		}
	}
}

// give returns the slice of a take for the next one.
func (q *queue) give(ops []op) {
	clear(ops)
	q.mu.Lock()
	q.spare = ops[:0]
	q.mu.Unlock()
}

// do puts an op into the queue; when the journal is closed it is finished at once.
func (j *Journal) do(o op) {
	if !j.queue.add(o) {
		o.finish(engine.ErrClosed)
	}
}
