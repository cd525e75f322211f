package jetstream

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
)

// writer decides about requests and stores the result. Only the worker of the log uses it.
type writer struct {
	l *log
	// The lock asking is held while the judge is asked about requests. A caller that stops waiting
	// holds this lock while it sets request.left.
	asking sync.Mutex
}

// gather lets other goroutines run until the queue stops growing. Callers that just got an answer
// often append again at once. It pays to wait for them, because a message with many entries costs
// little more than a message with one entry.
func (w *writer) gather() {
	for n := w.l.waiting(); ; {
		engine.Yield()
		m := w.l.waiting()
		if m <= n {
			return
		}
		n = m
	}
}

// write asks the judge about a group of requests and stores the result. If another node wrote
// first, write makes the judge forget its decisions (Rewind), applies the other node's records, and
// asks again.
func (w *writer) write(requests []*request) {
	for {
		err := w.certain()
		if err == nil {
			err = w.l.e.Nodes.ClockFault() // with a wrong clock, entries would get a wrong time, and trims would remove what must be kept
		}
		if err != nil {
			answer(requests, err)
			return
		}
		requests = w.fitting(requests)
		g := w.decide(requests)
		if len(g.newer) > 0 {
			if requests = w.withoutNewer(g); len(requests) == 0 {
				return
			}
			continue
		}
		if len(g.Messages) == 0 {
			answer(g.requests, nil)
			return
		}
		begun := time.Now()
		others, err := w.store(g)
		if err == nil && others == nil {
			w.commit(g, begun)
			w.l.turns.won(begun)
			return
		}
		if len(others) > 0 && others[0].Kind == record.Dropped {
			w.l.endedElsewhere()
			answer(g.requests, engine.ErrDropped)
			return
		}
		w.l.e.space.Refused(err)
		// After ErrFull the loop continues if the judge admitted entries. In the next round, fitting()
		// refuses the appends, and the trims of the group are written without them.
		if failed := w.rewind(g, err); failed != nil && (g.admitted == 0 || !errors.Is(failed, engine.ErrFull)) {
			answer(g.requests, failed)
			return
		}
		first := w.l.position + 1
		if err := w.l.applyAll(others); err != nil {
			if g.doubt && others[0].Position > first && errors.Is(err, engine.ErrBehind) {
				// The records between the last known record and others[0] were purged. This group
				// may have been among them: stored, trimmed by another node, and purged. So its
				// outcome is unknown.
				err = fmt.Errorf("%w: a write got no answer, and other nodes have trimmed that part of the log: %v", engine.ErrUnavailable, err)
			}
			answer(g.requests, err)
			return
		}
		if len(others) > 0 {
			w.l.e.counts.conflicts.Add(1)
		}
		w.l.turns.lost()
		w.l.mu.Lock()
		requests = w.l.takeGroup(g.requests) // more requests may have arrived
		w.l.mu.Unlock()
	}
}

// withoutNewer refuses the entries of a group that other nodes could not read, because these nodes
// run an older version. It takes back the decisions about the whole group, and returns the other
// requests.
func (w *writer) withoutNewer(g *group) []*request {
	older := fmt.Errorf("%w, which reads messages up to version %d", engine.ErrOlder, w.l.e.common())
	if failed := w.rewind(g, older); failed != older { // the judge cannot forget its decisions
		answer(g.requests, failed)
		return nil
	}
	answer(g.newer, older)
	return slices.DeleteFunc(g.requests, func(r *request) bool { return slices.Contains(g.newer, r) })
}

// certain waits until the node knows whether the log's document exists. A node that received
// nothing about documents for very long may have missed the deletion of the document. The marker of
// the deletion and the message that ended the log both expire. After that the log looks empty, and
// nothing shows that it has ended.
func (w *writer) certain() error {
	for !w.l.e.docs.Certain() {
		if err := w.l.e.docs.Sync(w.l.e.client.Life); errors.Is(err, engine.ErrClosed) {
			return err
		}
		select {
		case <-w.l.giveUp:
			return fmt.Errorf("%w: unknown whether the log still exists", engine.ErrUnavailable)
		default:
		}
	}
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.l.over
}

// fitting checks whether there is space for the requests. If not, it answers all appends with an
// error and returns only the trims, because trims free space.
func (w *writer) fitting(requests []*request) []*request {
	bytes := 0
	for _, r := range requests {
		if r.entry != nil {
			bytes += r.size
		}
	}
	full := w.l.e.space.Admits(w.l.e.client.Life, bytes)
	if full == nil {
		return requests
	}
	return slices.DeleteFunc(requests, func(r *request) bool {
		if r.entry != nil {
			r.answer(full)
		}
		return r.entry != nil
	})
}
