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

// request is an append or a trim that waits for its outcome, or a refresh (which has neither entry
// nor note).
type request struct {
	entry *engine.Entry
	low   weir.Seq // for a trim, which has no entry
	note  []byte
	done  chan error

	size, parts int // bytes of the payload, and the number of messages it takes

	// The caller stopped waiting, so the worker must not touch the entry; guarded by log.asking.
	left bool
}

// Append proposes an entry.
func (l *log) Append(ctx context.Context, e *engine.Entry) error {
	e.Size = uint32(len(e.Payload))
	if len(e.ContentType) > engine.MaxContentType || len(e.Key) > engine.MaxKey || len(e.Publisher) > weir.MaxPublisher {
		return fmt.Errorf("append entry: content type of %d bytes (at most %d), key of %d bytes (at most %d), publisher of %d bytes (at most %d)",
			len(e.ContentType), engine.MaxContentType, len(e.Key), engine.MaxKey, len(e.Publisher), weir.MaxPublisher)
	}
	parts := l.parts(len(e.Payload))
	if parts > groupMessages {
		return fmt.Errorf("append entry of %d bytes: needs %d messages, and one write takes at most %d", len(e.Payload), parts, groupMessages)
	}
	return l.propose(ctx, &request{entry: e, done: make(chan error, 1), size: len(e.Payload), parts: parts})
}

// propose hands an append or a trim to the worker and waits for its outcome.
func (l *log) propose(ctx context.Context, r *request) error {
	return l.ask(ctx, r, func() { l.queue = append(l.queue, r) })
}

// ask calls put to hand a request to the worker, and waits for the answer. It stops waiting when
// ctx ends or Patience has passed. The request is then marked as left: the worker skips it if the
// judge has not been asked yet, and otherwise settles it and discards the answer.
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
	if r.entry != nil {
		if p, ok := r.entry.Proposer.(engine.Placeable); ok {
			p.Placed()
		}
	}
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
	case err := <-r.done: // answered just now
		return err
	default:
	}
	return err
}

// wake starts the worker if there is something to do and it is not running. The caller holds l.mu.
func (l *log) wake() {
	if !l.working && (len(l.queue) > 0 || len(l.inbox) > 0 || l.over == engine.ErrDropped || l.mustRefresh()) {
		l.working = true
		go l.work()
	}
}

// hear takes the records of one message from the line that follows the shard.
func (l *log) hear(records []message) {
	l.mu.Lock()
	l.inbox = append(l.inbox, records...)
	l.newest = max(l.newest, records[0].js)
	l.wake()
	l.mu.Unlock()
	l.signal()
}

// hears reports whether the log takes messages from the line.
func (l *log) hears() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attendance.joined
}

// signal wakes a worker that waits for messages of other nodes. It never blocks.
func (l *log) signal() {
	select {
	case l.heard <- struct{}{}:
	default:
	}
}

// settle waits until the worker has nothing left to do, for at most as long as servers may take to
// answer.
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

// work is the worker: a loop that ends when there is nothing left to do. Each round
//
//  1. follows the records that the line delivered,
//  2. reads what other nodes wrote, if a caller asked for that or following begins (refresh),
//  3. leaves the log to other nodes if they are owed a turn, and lets more requests arrive,
//  4. takes a group of waiting requests, has the judge decide them, and stores the result.
//
// The order matters: an entry must be decided with knowledge of everything before it, or its write
// fails and the decision was in vain.
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
		if l.over != nil { // it failed: the judge cannot decide anything any more
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

// rest marks the worker as stopped. The caller holds l.mu.
func (l *log) rest() {
	l.working = false
	if l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// end answers all waiting requests after the log was dropped, and tells the judge last. The caller
// holds l.mu; end releases it. The worker still counts as working until the judge was told, so that
// no second worker starts.
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

// errEnded is ErrDropped after the judge was told. It differs from ErrDropped itself, which makes
// the worker call end.
var errEnded = fmt.Errorf("%w", engine.ErrDropped)

// waiting returns the number of requests in the queue.
func (l *log) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// gather lets other goroutines run until the queue stops growing. Callers that just got an answer
// are about to append again, and a message with many entries costs little more than a message with
// one.
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

// write has the judge decide a group and stores it. If another node wrote first, write takes the
// decisions back, follows the other node's records, and decides again.
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
		// After ErrFull the loop continues if the judge admitted entries: fitting then refuses the
		// appends, and the trims of the group are written without them.
		if failed := l.rewind(g, err); failed != nil && (g.admitted == 0 || !errors.Is(failed, engine.ErrFull)) {
			answer(g.requests, failed)
			return
		}
		first := l.position + 1
		if err := l.applyAll(others); err != nil {
			if g.doubt && others[0].position > first && errors.Is(err, engine.ErrBehind) {
				// The purged records between may have been this group: stored, evicted by another
				// node, and purged. Its outcome cannot be known.
				err = fmt.Errorf("%w: a write got no answer, and other nodes have trimmed that part of the log: %v", engine.ErrUnavailable, err)
			}
			answer(g.requests, err)
			return
		}
		l.lost()
		l.mu.Lock()
		requests = l.takeGroup(g.requests) // more may have arrived
		l.mu.Unlock()
	}
}

// certain waits until the log's document is known to exist. A node that heard nothing about
// documents for very long may have missed that the document was deleted. The deletion marker and
// the message that ended the log both expire. After that the log looks empty, and nothing shows
// that it has ended.
func (l *log) certain() error {
	for !l.e.docs.certain() {
		if err := l.e.docs.catchUp(l.e.ctx); errors.Is(err, engine.ErrClosed) {
			return err
		}
		select {
		case <-l.giveUp:
			return fmt.Errorf("%w: unknown whether the log still exists", engine.ErrUnavailable)
		default:
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// fitting answers the appends for which there is no space, and returns the other requests. Trims
// pass, because they free space.
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
