package journal

import (
	"slices"
	"time"

	"weir/internal/disk"
	"weir/internal/engine"
)

var _ engine.Flusher = (*Journal)(nil)

// quick is the default of Options.QuickDisk.
const quick = 300 * time.Microsecond

// Flush implements engine.Flusher. On a quick disk, and if nothing else is in flight, it does the
// work of the committer, the writer and the teller in the goroutine of the caller. Each of these
// goroutines would have to be woken, which takes longer than the work itself. In all other cases
// Flush wakes the committer, and does not wait.
func (j *Journal) Flush() {
	ops := j.seize()
	if ops == nil {
		return
	}
	c, w := &j.commit, &j.write
	rest := c.stage(ops, false) // empty in nearly all cases, because seize has looked whether the ops fit
	if g := c.group; len(g.ops) > 0 {
		start := time.Now()
		err := w.write(g, false)
		if disk.IsShortage(err) {
			c.hand() // the writer repeats the write until there is space
		} else {
			if w.apply(g, err, start) {
				for _, o := range g.ops {
					o.finish(nil)
				}
				j.queue.finished()
			}
			c.empty <- g
			c.handed()
			w.proveSome()
			w.idling.Reset(idle)
		}
	}
	j.queue.yield(rest)
	j.queue.give(ops)
}

// seize removes all ops from the queue. Until yield is called, only the caller may use the
// committer and the writer. It returns nil if there are no ops, or if the goroutines of the
// committer and the writer must do the work. They must do the work if
//
//   - a group is being written,
//   - the queue holds an op that does not wait for a call of Flush,
//   - the ops do not fit into the segment, so that the next one has to be begun, or
//   - writing takes long.
func (j *Journal) seize() []op {
	q, c := &j.queue, &j.commit
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.ops) == 0 || q.flushing: // if flushing, the other caller of Flush wakes the committer when it finishes
		return nil
	case q.working > 0 || q.closed || q.urgent || q.bytes >= bulk || len(q.ops) >= mostOps || j.refusing() != nil ||
		j.write.took >= j.opts.QuickDisk || c.active == nil || c.active != j.write.active || !c.active.Fits(q.bytes, len(q.ops), c.spare(growing)):
		q.signal.wake()
		return nil
	}
	q.flushing = true
	return q.take()
}

// yield ends what seize has begun. It puts the ops that Flush could not stage back at the front of
// the queue, for the committer.
func (q *queue) yield(rest []op) {
	q.mu.Lock()
	if len(rest) > 0 {
		q.ops, q.urgent = append(slices.Clone(rest), q.ops...), true
		for _, o := range rest {
			bytes, _ := o.bound()
			q.bytes += bytes
		}
	}
	q.flushing = false
	more := len(q.ops) > 0 || q.closed
	q.mu.Unlock()
	if more {
		q.signal.wake()
	}
}
