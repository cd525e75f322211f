package journal

import (
	"sync"

	"weir/internal/engine"
	"weir/internal/shrink"
)

// op is an operation that passes through the committer: an append, a document change, a trim, a
// copy by the reclaimer, or a manifest change. The committer collects ops into groups and calls
// bound, class and stage. The writer makes a group durable with one write and one sync, and then
// calls settle for each op. finish is the last call. If the group cannot be made durable, finish is
// called without settle.
type op interface {
	// bound returns the largest number of bytes and of records that the op may write. Any goroutine
	// may call it before stage. An op with 0 records writes nothing, so it is staged even if the disk
	// is full or has failed.
	bound() (bytes, records int)
	// class determines how early the op is refused when the disk fills up.
	class() class
	// stage decides the outcome of the op, based on all ops before it, and adds the op's records to
	// the group.
	stage(g *group)
	// settle applies the op to the state in memory. The writer calls it after the group was synced,
	// in the order of the ops.
	settle(g *group)
	// finish reports the outcome to the waiting caller. It must not block.
	finish(err error)
}

// class orders the ops by how early they are refused when the disk fills up, the earliest first.
type class uint8

const (
	growing  class = iota // ops that take space for good; refused first, to leave space for the other classes
	copying               // ops that take some space in order to free more
	deleting              // small ops that either free space or must not wait
	freeing               // ops that free a segment, or write nothing
)

// queue holds the ops that wait for the committer.
type queue struct {
	mu     sync.Mutex
	ops    []op
	bytes  int  // upper bound for the bytes that these ops will write
	spare  []op // an empty slice for reuse; see give
	urgent bool // the queue holds an op that does not wait for a call of Flush
	closed bool
	signal signal

	// working is the number of groups that have ops and are not finished, plus one while the committer
	// works, and one while the writer works. While flushing is set, Flush does the work of the
	// committer and the writer, and working is 0, or 1 for the group of Flush. (If the disk is full,
	// Flush hands its group to the writer.)
	working  int
	flushing bool
}

// signal wakes one goroutine. The channel holds one signal, so wake never blocks. If the channel
// already holds a signal, the goroutine has yet to look at what it waits for, and will find
// everything that was added before wake was called.
type signal chan struct{}

func (s signal) wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// init counts the committer as working, until it waits for the first time.
func (q *queue) init() { q.signal, q.working = make(signal, 1), 1 }

// add appends an op. It returns false if the journal is closed.
func (q *queue) add(o op) bool {
	bytes, _ := o.bound()
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.ops, q.bytes = append(q.ops, o), q.bytes+bytes
	a, ok := o.(*appendOp)
	wake := !q.urgent && !(ok && a.e.Deferred) // otherwise the committer was already woken, or Flush follows
	q.urgent = q.urgent || wake
	if ok {
		a.placed() // before the unlock: afterwards the op may already be finished and recycled
	}
	q.mu.Unlock()
	if wake {
		q.signal.wake()
	}
	return true
}

// close refuses further ops. Ops already queued are still processed.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal.wake()
}

// gather yields to runnable goroutines until the queue stops growing, or holds enough ops for a
// group. This makes groups larger: callers that were just acknowledged are about to append again,
// and a sync for many appends costs little more than a sync for one append.
func (q *queue) gather() {
	for before := -1; ; engine.Yield() {
		q.mu.Lock()
		n, enough := len(q.ops), len(q.ops) >= mostOps || q.bytes >= maxGroup
		q.mu.Unlock()
		if n <= before || enough {
			return
		}
		before = n
	}
}

// wait blocks until the queue holds an op and Flush is not at work. It returns false if the queue is
// closed and empty. Meanwhile the committer does not count as working.
func (q *queue) wait() bool {
	for q.finished(); ; <-q.signal {
		q.mu.Lock()
		n := len(q.ops)
		ready := (n > 0 || q.closed) && !q.flushing
		if ready {
			q.working++
		}
		q.mu.Unlock()
		if ready {
			return n > 0
		}
	}
}

// count counts a group that has got its first op, or the work of the writer on a group.
func (q *queue) count() {
	q.mu.Lock()
	q.working++
	q.mu.Unlock()
}

// begin counts work that the writer does without a group. If Flush is at work, begin counts nothing
// and returns false.
func (q *queue) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flushing {
		return false
	}
	q.working++
	return true
}

// finished is called at the end of what count or begin has counted, or of the committer's work.
func (q *queue) finished() {
	q.mu.Lock()
	q.working--
	q.mu.Unlock()
}

// grab removes all ops from the queue and returns them. The result may be empty.
func (q *queue) grab() []op {
	q.gather()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take()
}

// take removes all ops from the queue and returns them. Called with q.mu held.
func (q *queue) take() []op {
	ops := q.ops
	q.ops, q.bytes, q.spare, q.urgent = q.spare[:0], 0, nil, false
	return ops
}

// give hands back a slice that grab returned, for reuse.
func (q *queue) give(ops []op) {
	clear(ops)
	q.mu.Lock()
	q.spare = shrink.Slice(ops)[:0]
	q.mu.Unlock()
}

// do queues an op. If the journal is closed, the op finishes at once with engine.ErrClosed.
func (j *Journal) do(o op) {
	if !j.queue.add(o) {
		o.finish(engine.ErrClosed)
	}
}
