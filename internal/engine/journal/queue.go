package journal

import (
	"runtime"
	"sync"

	"weir/internal/engine"
)

// op is something that the committer does in its order: an append, a change of a document, a trim, a copy made by
// reclaiming, a change of the manifest.
type op interface {
	// bound returns the most that the op will write, in bytes and in records.
	bound() (bytes, records int)
	// class says what the op leaves free for others when space runs out.
	class() class
	// stage decides what becomes of the op at its place in the order, and adds its records to the group.
	stage(g *group)
	// settle is called after the group was synced, in order: memory catches up with the disk.
	settle(g *group)
	// finish tells whoever waits.
	finish(err error)
}

// class orders ops by when they are refused on a full disk.
type class uint8

const (
	growing  class = iota // needs space for good: refused first, while there is room yet to make space
	copying               // makes space by taking some
	deleting              // small, and makes space or must not wait
	freeing               // gives a segment back
)

// queue is what waits for the committer.
type queue struct {
	mu     sync.Mutex
	ops    []op
	spare  []op
	closed bool
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

// gather lets runnable goroutines run until the queue stops growing: those that were just told of their last append
// are about to make the next one, and a sync for many costs little more than a sync for one.
func (q *queue) gather() {
	for n := q.len(); ; {
		runtime.Gosched()
		m := q.len()
		if m <= n {
			return
		}
		n = m
	}
}

// wait returns when there are ops; false when there are none and will be none.
func (q *queue) wait() bool {
	for {
		q.mu.Lock()
		n, closed := len(q.ops), q.closed
		q.mu.Unlock()
		if n > 0 || closed {
			return n > 0
		}
		<-q.signal
	}
}

// grab takes all ops that there are, perhaps none.
func (q *queue) grab() []op {
	q.gather()
	q.mu.Lock()
	defer q.mu.Unlock()
	ops := q.ops
	q.ops, q.spare = q.spare[:0], nil
	return ops
}

// give returns the slice of a grab for the next one.
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
