package jetstream

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
)

// request is a call that waits for the worker, the goroutine that does everything in the order of
// one log. It is an append, a trim, or a refresh (reading what other nodes wrote). A refresh has
// neither entry nor note.
type request struct {
	entry *engine.Entry
	low   weir.Seq // the lowest sequence that a trim keeps; a trim has no entry
	note  []byte

	done     func(error) // receives the outcome; nil if no caller waits for it
	answered atomic.Bool // done was called, or will be called at once
	late     *time.Timer // answers the request when Patience has passed; nil if the field done is nil

	size, parts int // size of the payload in bytes, and number of messages that it needs

	// left is true if the caller stopped waiting, so that the worker must not use the entry.
	// Guarded by writer.asking.
	left bool
}

// answer reports the outcome of the request, unless an outcome was reported before.
func (r *request) answer(err error) {
	if r.done == nil || !r.answered.CompareAndSwap(false, true) {
		return
	}
	r.late.Stop()
	r.done(err)
}

// Append proposes an entry and waits for the outcome.
func (l *log) Append(ctx context.Context, e *engine.Entry) error {
	r, err := l.appending(e)
	if err != nil {
		return err
	}
	return l.ask(ctx, r, &l.queue)
}

// Propose implements engine.Log.
func (l *log) Propose(e *engine.Entry, done func(error)) {
	r, err := l.appending(e)
	if err == nil {
		r.done = done
		err = l.begin(context.Background(), r, &l.queue)
	}
	if err != nil {
		done(err)
	}
}

// appending returns the request that appends an entry.
func (l *log) appending(e *engine.Entry) (*request, error) {
	e.Size = uint32(len(e.Payload))
	if len(e.ContentType) > engine.MaxContentType || len(e.Key) > engine.MaxKey || len(e.Publisher) > weir.MaxPublisher || len(e.Tag) > engine.MaxTag {
		return nil, fmt.Errorf("append entry: content type of %d bytes (at most %d), key of %d bytes (at most %d), publisher of %d bytes (at most %d), tag of %d bytes (at most %d)",
			len(e.ContentType), engine.MaxContentType, len(e.Key), engine.MaxKey, len(e.Publisher), weir.MaxPublisher, len(e.Tag), engine.MaxTag)
	}
	parts := l.e.chunk().Parts(len(e.Payload))
	if parts > groupMessages {
		return nil, fmt.Errorf("append entry of %d bytes: needs %d messages, and one write takes at most %d", len(e.Payload), parts, groupMessages)
	}
	return &request{entry: e, size: len(e.Payload), parts: parts}, nil
}

// ask adds a request to a queue of the worker, and waits for the answer or until ctx ends.
func (l *log) ask(ctx context.Context, r *request, queue *[]*request) error {
	outcome := make(chan error, 1)
	r.done = func(err error) { outcome <- err }
	if err := l.begin(ctx, r, queue); err != nil {
		return err
	}
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		l.leave(r, ctx.Err())
		return <-outcome // the error of ctx, or the worker's answer if that came first
	}
}

// begin adds a request to a queue of the worker. From then on the request is answered once: by the
// worker, or with ErrUnavailable when Patience has passed.
func (l *log) begin(ctx context.Context, r *request, queue *[]*request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.usable(ctx)
	if err == nil && l.closing {
		err = engine.ErrClosed
	}
	if err != nil {
		return err
	}
	r.late = time.AfterFunc(l.e.client.Limit(), func() {
		l.leave(r, fmt.Errorf("%w: no answer within %v", engine.ErrUnavailable, l.e.opts.Patience))
	})
	*queue = append(*queue, r)
	if r.entry != nil {
		if p, ok := r.entry.Proposer.(engine.Placeable); ok {
			p.Placed() // before the worker can answer the request: afterwards the caller may reuse the entry
		}
	}
	l.wake()
	return nil
}

// leave answers a request whose caller waits no longer. If the judge (engine.Judge, the rules of the
// stream) has not been asked about the request yet, the worker skips it. Otherwise the worker
// completes the request and discards its own answer.
func (l *log) leave(r *request, err error) {
	l.writer.asking.Lock()
	r.left = true
	l.writer.asking.Unlock()
	r.answer(err)
}

// wake starts the worker if there is something to do and it is not running. The caller holds l.mu.
func (l *log) wake() {
	if !l.working && (len(l.queue) > 0 || len(l.inbox) > 0 || l.over == engine.ErrDropped || l.mustRefresh()) {
		l.working = true
		l.e.crew.start(l)
	}
}

// hear receives the records of one message from the line, which is the subscription to the shard.
func (l *log) hear(records []record.Record) {
	l.mu.Lock()
	l.inbox = append(l.inbox, records...)
	l.newest = max(l.newest, records[0].At)
	l.wake()
	l.mu.Unlock()
	l.signal()
}

// hears reports whether the log receives messages from the line.
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

// settle waits until the worker has nothing left to do. After Patience it tells the worker to give
// up. When settle returns, it holds l.mu, so that the worker does not start again.
func (l *log) settle() {
	late := time.AfterFunc(l.e.client.Limit(), func() { l.gaveUp.Do(func() { close(l.giveUp) }) })
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
}

// work is the worker: a loop that ends when there is nothing left to do. Each round
//
//  1. applies the records of other nodes that the line delivered (follow),
//  2. reads what other nodes wrote, if a caller requested it or the log must be followed (refresh),
//  3. leaves the log to other nodes if it is their turn, and lets more requests arrive,
//  4. takes a group of waiting requests, asks the judge about them, and stores the result.
//
// The order matters: when the judge decides about an entry, it must know everything that comes
// before the entry in the log. Otherwise the write fails and the decision was in vain.
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
			l.turns.yield()
			l.writer.gather()
			l.follow()
		}
		l.mu.Lock()
		l.tell()
		if l.over == engine.ErrDropped {
			l.end()
			return
		}
		if l.over != nil && len(l.queue)+len(l.attendance.refreshes) > 0 { // the log failed, so the judge must not be asked any more
			failed, err := append(l.queue, l.attendance.refreshes...), l.over
			l.queue, l.attendance.refreshes = nil, nil
			l.mu.Unlock()
			answer(failed, err) // without the lock, because callers may propose again at once
			continue
		}
		group := l.takeGroup(nil)
		if len(group) == 0 && len(l.inbox) == 0 && !l.mustRefresh() {
			l.rest()
			l.mu.Unlock()
			l.turns.give() // a node that asked a moment ago was not told, because the worker was still running
			return
		}
		l.mu.Unlock()
		if len(group) > 0 {
			l.writer.write(group)
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

// end is called after the log was dropped. It answers all waiting requests and then calls
// Judge.Dropped. The caller holds l.mu, and end releases it. The worker counts as working until
// Dropped has returned, so that no second worker starts.
func (l *log) end() {
	queue := append(l.queue, l.attendance.refreshes...)
	l.queue, l.attendance.refreshes, l.inbox = nil, nil, nil
	l.index.empty()
	l.mu.Unlock()
	answer(queue, engine.ErrDropped)
	l.judge.Dropped()
	l.e.detach(l)
	close(l.gone)
	l.mu.Lock()
	l.over = errEnded
	l.rest()
	l.mu.Unlock()
}

// errEnded is the error of a dropped log after Judge.Dropped was called. It wraps ErrDropped but is
// a different value, because ErrDropped itself makes the worker call end.
var errEnded = fmt.Errorf("%w", engine.ErrDropped)

// waiting returns the number of requests in the queue.
func (l *log) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

func answer(requests []*request, err error) {
	for _, r := range requests {
		r.answer(err)
	}
}
