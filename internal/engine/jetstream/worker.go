package jetstream

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"weir"
	"weir/internal/engine"
)

// request is an append or a trim on its way.
type request struct {
	entry *engine.Entry
	low   weir.Seq // of a trim, which has no entry
	note  []byte
	done  chan error

	size, parts int // of its payload

	left bool // nobody waits any more, and the entry is not ours: guarded by log.asking
}

// Append proposes an entry.
func (l *log) Append(ctx context.Context, e *engine.Entry) error {
	e.Size = uint32(len(e.Payload))
	if len(e.ContentType) > engine.MaxContentType || len(e.Key) > engine.MaxKey {
		return fmt.Errorf("entry with a content type of %d bytes and a key of %d bytes", len(e.ContentType), len(e.Key))
	}
	parts := l.parts(len(e.Payload))
	if parts > groupMessages {
		return fmt.Errorf("entry of %d bytes: it would take %d messages, and %d can be written together", len(e.Payload), parts, groupMessages)
	}
	return l.propose(ctx, &request{entry: e, done: make(chan error, 1), size: len(e.Payload), parts: parts})
}

// propose hands an append or a trim to the worker and waits for its fate.
func (l *log) propose(ctx context.Context, r *request) error {
	return l.ask(ctx, r, func() { l.queue = append(l.queue, r) })
}

// ask puts a request where the worker takes it from, and waits for its answer.
func (l *log) ask(ctx context.Context, r *request, put func()) error {
	l.mu.Lock()
	err := l.usable(ctx)
	if err == nil && l.closing {
		err = engine.ErrClosed
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	put()
	l.wake()
	l.mu.Unlock()
	late := time.NewTimer(l.e.opts.Patience)
	defer late.Stop()
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-late.C:
		err = fmt.Errorf("%w: no answer within %v", engine.ErrUnavailable, l.e.opts.Patience)
	}
	l.asking.Lock()
	r.left = true
	l.asking.Unlock()
	select {
	case err := <-r.done: // just now
		return err
	default:
	}
	return err
}

// rouse starts the worker if it has something to do. With l.mu held.
func (l *log) wake() {
	if !l.working && (len(l.queue) > 0 || len(l.inbox) > 0 || l.over == engine.ErrDropped || l.mustRefresh()) {
		l.working = true
		go l.work()
	}
}

// hear takes the records of a message from the one who follows the shard.
func (l *log) hear(records []message) {
	l.mu.Lock()
	l.inbox = append(l.inbox, records...)
	l.newest = max(l.newest, records[0].js)
	l.wake()
	l.mu.Unlock()
	l.signal()
}

// hears tells whether messages are taken as they come.
func (l *log) hears() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attendance.joined
}

// signal tells the worker that something was heard, if it waits for that.
func (l *log) signal() {
	select {
	case l.heard <- struct{}{}:
	default:
	}
}

// settle waits until the worker has nothing more to do, as long as servers may take to answer.
func (l *log) settle() {
	late := time.AfterFunc(l.e.opts.Patience, func() { l.gaveUp.Do(func() { close(l.giveUp) }) })
	defer late.Stop()
	l.mu.Lock()
	for l.working {
		if l.idle == nil {
			l.idle = make(chan struct{})
		}
		idle := l.idle
		l.mu.Unlock()
		<-idle
		l.mu.Lock()
	}
	l.mu.Unlock()
}

// work does what there is to do, and ends.
func (l *log) work() {
	for {
		l.follow()
		l.mu.Lock()
		refreshes, due := l.attendance.refreshes, l.mustRefresh() && l.over == nil
		if due {
			l.attendance.refreshes = nil
		}
		l.mu.Unlock()
		if due {
			answer(refreshes, l.refresh())
		}
		if l.waiting() > 0 {
			l.yield()
			l.gather()
			l.follow()
		}
		l.mu.Lock()
		l.tell()
		if l.over == engine.ErrDropped {
			l.end()
			return
		}
		if l.over != nil { // it failed: nothing can be decided any more
			answer(append(l.queue, l.attendance.refreshes...), l.over)
			l.queue, l.attendance.refreshes = nil, nil
		}
		group := l.takeGroup(nil)
		if len(group) == 0 && len(l.inbox) == 0 && !l.mustRefresh() {
			l.rest()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if len(group) > 0 {
			l.write(group)
		}
	}
}

// rest marks the worker as stopped. With l.mu held.
func (l *log) rest() {
	l.working = false
	if l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// end tells everybody that the log was dropped; the judge last. It is called with l.mu held and gives it back. The worker
// goes on working in name, so that no other begins.
func (l *log) end() {
	queue := append(l.queue, l.attendance.refreshes...)
	l.queue, l.attendance.refreshes, l.inbox, l.index = nil, nil, nil, nil
	l.mu.Unlock()
	for _, r := range queue {
		r.done <- engine.ErrDropped
	}
	l.judge.Dropped()
	l.e.detach(l)
	close(l.gone)
	l.mu.Lock()
	if l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
	l.over = errEnded
	l.working = false
	l.mu.Unlock()
}

// errEnded is ErrDropped after the judge heard of it.
var errEnded = fmt.Errorf("%w", engine.ErrDropped)

// waiting is how many requests are in the queue.
func (l *log) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// gather lets runnable goroutines run until the queue stops growing: those that were just told of their last append are about to make
// the next one, and a message with many costs little more than a message with one.
func (l *log) gather() {
	for n := l.waiting(); ; {
		runtime.Gosched()
		m := l.waiting()
		if m <= n {
			return
		}
		n = m
	}
}

// write decides a group and has it stored. When another process came first, what was decided is taken back, and decided
// anew behind what came.
func (l *log) write(requests []*request) {
	for {
		if err := l.certain(); err != nil {
			answer(requests, err)
			return
		}
		requests = l.fitting(requests)
		g := l.decide(requests)
		if len(g.msgs) == 0 {
			answer(g.requests, nil)
			return
		}
		begun := time.Now()
		others, err := l.store(g)
		if err == nil && others == nil {
			l.commit(g, begun)
			l.won(begun)
			return
		}
		if len(others) > 0 && others[0].kind == dropped {
			l.drop()
			answer(g.requests, engine.ErrDropped)
			return
		}
		l.e.tooFull(err)
		if failed := l.rewind(g, err); failed != nil && (g.admitted == 0 || !errors.Is(failed, engine.ErrFull)) {
			answer(g.requests, failed)
			return
		}
		first := l.position + 1
		if err := l.applyAll(others); err != nil {
			if g.doubt && others[0].position > first && errors.Is(err, engine.ErrBehind) {
				// What lay between may have been ours: stored, evicted by others, and purged.
				err = fmt.Errorf("%w: a write had no answer, and others trimmed what was there: %v", engine.ErrUnavailable, err)
			}
			answer(g.requests, err)
			return
		}
		l.lost()
		l.mu.Lock()
		requests = l.takeGroup(g.requests) // more may have come
		l.mu.Unlock()
	}
}

// certain waits until it is known that the log's document is there: who heard nothing of documents for very long may have
// missed that it was deleted, and that the log has an end.
func (l *log) certain() error {
	for !l.e.docs.certain() {
		if err := l.e.docs.catchUp(l.e.ctx); errors.Is(err, engine.ErrClosed) {
			return err
		}
		select {
		case <-l.giveUp:
			return fmt.Errorf("%w: whether the log is there still is not known", engine.ErrUnavailable)
		default:
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// fitting answers entries for which there is no space, and returns the rest: what frees space is not held up.
func (l *log) fitting(requests []*request) []*request {
	bytes := 0
	for _, r := range requests {
		if r.entry != nil {
			bytes += r.size
		}
	}
	full := l.e.admits(l.e.ctx, bytes)
	if full == nil {
		return requests
	}
	return slices.DeleteFunc(requests, func(r *request) bool {
		if r.entry != nil {
			r.done <- full
		}
		return r.entry != nil
	})
}

func answer(requests []*request, err error) {
	for _, r := range requests {
		r.done <- err
	}
}
