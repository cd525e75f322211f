package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"

	"weir"
)

// The longest pauses before a retry. If the publisher may have left a gap in the stream, it retries
// within gapRetry, because the service closes gaps after a grace period (D4).
const (
	gapRetry = 250 * time.Millisecond
	maxRetry = 5 * time.Second
)

// send sends batches until the publisher ends, always the lowest sequence number first. It starts a
// batch when the previous one has been written to the connection. So if a connection breaks, the
// service has received a prefix of the batches. Without that order, it could receive 5 but not 4,
// and the gap would stay open until the client reconnected.
func (p *Publisher) send() {
	stop := context.AfterFunc(p.ctx, p.wake)
	defer stop()
	next := make(chan *attempt)
	defer close(next)
	for {
		f := p.toSend()
		if f == nil {
			return
		}
		a := &attempt{f: f, written: make(chan struct{})}
		select {
		case next <- a: // an idle goroutine takes it
		default:
			p.work.Go(func() { p.carry(a, next) })
		}
		select {
		case <-a.written:
		case <-p.ctx.Done():
		}
	}
}

func (p *Publisher) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}

// attempt is one attempt to send a batch.
type attempt struct {
	f       *flight
	once    sync.Once
	written chan struct{} // closed when the batch has been written to the connection, or never will be
}

func (a *attempt) wrote() { a.once.Do(func() { close(a.written) }) }

// carry makes an attempt, and then takes further attempts from next. Reusing the goroutine saves
// growing a new stack.
func (p *Publisher) carry(a *attempt, next <-chan *attempt) {
	for ; a != nil; a = <-next {
		p.attempt(a)
	}
}

// toSend waits for the next batch to send. It returns nil if the publisher has ended.
func (p *Publisher) toSend() *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.ctx.Err() != nil || p.err != nil {
			return nil
		}
		if p.closings > 0 {
			if p.sending == 0 {
				p.renumber()
			} else {
				p.changed.Wait()
			}
			continue
		}
		if p.unsent < len(p.window) {
			pause := time.Until(p.until)
			if pause <= 0 {
				break
			}
			alarm := time.AfterFunc(pause, p.wake)
			p.changed.Wait()
			alarm.Stop()
			continue
		}
		p.changed.Wait()
	}
	f := p.window[p.unsent]
	f.state, f.epoch = flying, p.epoch
	f.tries++
	p.sending++
	for p.unsent < len(p.window) && p.window[p.unsent].state != queued {
		p.unsent++
	}
	return f
}

// attempt sends a batch once. If the service has already reported the batch as a duplicate, attempt
// does not send it again; it only checks whether the stored batch is the same.
func (p *Publisher) attempt(a *attempt) {
	defer a.wrote()
	f := a.f
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { a.wrote() }}
	ctx := httptrace.WithClientTrace(p.ctx, trace)
	var err error
	if !f.ack.Duplicate {
		f.ack, err = p.try(ctx, a)
	}
	// With an idempotency key, a duplicate can only be this batch: no other writer knows the key.
	if err == nil && f.ack.Duplicate && f.claim == "" {
		err = p.mine(ctx, f)
	}
	if err == nil {
		p.succeed(f)
	} else {
		p.fail(f, err)
	}
}

// try publishes a batch once. Retrying a batch that was stored but has since been evicted counts as
// a success.
func (p *Publisher) try(ctx context.Context, a *attempt) (ack weir.Ack, err error) {
	f := a.f
	r := publishAt(p.id, f.seq, f.payload)
	if f.claim != "" {
		r = publishNext(p.id, f.claim, f.payload)
	}
	r.sent = a.wrote
	err = p.c.once(ctx, p.transport, r, &ack)
	if f.tries > 1 && CodeOf(err) == weir.InvalidSequence && p.passed(ctx, f) {
		return weir.Ack{StreamID: p.id, Seq: f.seq, Accepted: uint32(f.events), Cursor: f.seq, Duplicate: true}, nil
	}
	return ack, err
}

// mine checks whether the batch that is stored under a sequence number is the one that was sent
// under it. The service reports a duplicate in two cases: an earlier attempt was stored and its
// response got lost, or another writer used the number. If the batch cannot be read, because the
// key lacks the permission or because the batch was evicted, mine compares only the number of
// events.
func (p *Publisher) mine(ctx context.Context, f *flight) error {
	// A duplicate at the first attempt cannot be this batch, unless an earlier run has stored it.
	if f.tries == 1 && p.o.StartAt == nil {
		return fmt.Errorf("%w: sequence number %d was already used", ErrConflict, f.seq)
	}
	var got body
	err := p.c.once(ctx, p.transport, batchRequest(p.id, f.seq), &got)
	if err == nil {
		batch, err := got.batch(f.seq)
		if err == nil && !f.holds(batch) {
			err = fmt.Errorf("%w: sequence number %d holds a different batch", ErrConflict, f.seq)
		}
		return err
	}
	switch code := CodeOf(err); {
	case code != weir.ProjectForbidden && code != weir.StreamNotFound:
		return err
	case int(f.ack.Accepted) != f.events:
		return fmt.Errorf("%w: sequence number %d holds %d events, but %d were sent", ErrConflict, f.seq, f.ack.Accepted, f.events)
	}
	return nil
}

// passed reports whether the service refuses a resent batch because the batch has been evicted
// since the first attempt. That is not a conflict: the batch could not be read any more anyway.
func (p *Publisher) passed(ctx context.Context, f *flight) bool {
	err := p.c.once(ctx, p.transport, batchRequest(p.id, f.seq), nil)
	e, ok := errors.AsType[*Error](err)
	// Evicted and never stored have the same code. Only the message tells them apart (D12).
	return ok && e.Code == weir.StreamNotFound && strings.Contains(e.Message, "evicted")
}

// succeed records an acknowledgement, and reports every acknowledgement that is now next in order.
func (p *Publisher) succeed(f *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.state = stored
	if f.claim != "" {
		f.seq = f.ack.Seq
		p.first, p.next, p.claim = f.seq, f.seq+1, ""
	}
	p.sending--
	p.failures, p.until, p.progress = 0, time.Time{}, time.Now()
	p.ahead++
	p.changed.Broadcast()
	if p.settling {
		return // the goroutine that is reporting will get to this one
	}
	p.settling = true
	for len(p.window) > 0 && p.window[0].state == stored {
		f := p.window[0]
		p.window[0] = nil
		p.window = p.window[1:]
		p.unsent--
		p.ahead--
		p.bytes -= len(f.payload.body)
		p.reported = f.nth
		p.cutDue()
		p.changed.Broadcast()
		if p.o.OnAck != nil {
			// Without the lock, so that a slow OnAck does not block Add. The settling flag ensures
			// that only one goroutine gets here at a time, which preserves the order.
			p.mu.Unlock()
			p.o.OnAck(f.ack)
			p.mu.Lock()
		}
		p.reported = 0
	}
	p.settling = false
	p.changed.Broadcast()
}

// fail queues a batch to be sent again, or makes the publisher fail.
func (p *Publisher) fail(f *flight, err error) {
	p.mu.Lock()
	p.sending--
	f.state = queued
	p.unsent = min(p.unsent, slices.Index(p.window, f))
	p.changed.Broadcast()
	final := !transient(err) || errors.Is(err, ErrConflict)
	if p.ctx.Err() == nil && final {
		if err = p.explain(f, err); errors.Is(err, ErrTooLate) && p.o.StartAt == nil {
			f.state = closed
			p.closings++
			p.mu.Unlock()
			return
		}
		p.end(f, err)
	}
	if p.ctx.Err() != nil || p.err != nil {
		p.mu.Unlock()
		return
	}
	if p.o.GiveUp > 0 && time.Since(p.progress) > p.o.GiveUp {
		p.end(f, fmt.Errorf("%w after %v without an acknowledgement: %w", ErrGivenUp, p.o.GiveUp, err))
		p.mu.Unlock()
		return
	}
	report := f.epoch == p.epoch
	pause := time.Duration(0)
	if report {
		p.epoch++
		p.failures++
		pause = p.pause(err)
		p.until = time.Now().Add(pause)
	}
	p.mu.Unlock()
	if report && p.o.OnRetry != nil {
		p.o.OnRetry(err, pause)
	}
}

// end makes the publisher fail. If several batches fail, it keeps the error of the lowest sequence
// number.
func (p *Publisher) end(f *flight, err error) {
	if p.err == nil || f.seq < p.err.Seq {
		p.err = &PublishError{Stream: p.id, Seq: f.seq, Err: err}
	}
	p.changed.Broadcast()
}

// pause returns how long to wait after a failure. It respects the Retry-After of the service,
// unless a gap is open: the failed batch is then needed to fill it in time.
func (p *Publisher) pause(err error) time.Duration {
	sent := 0
	for _, f := range p.window {
		if f.tries > 0 {
			sent++
		}
	}
	most := maxRetry
	if sent > 1 { // a higher batch may be stored already, so there may be a gap
		most = gapRetry
	}
	pause := backoff(p.failures, most)
	if asked := retryAfter(err); asked > 0 && p.ahead == 0 {
		pause = max(pause, asked)
	}
	return pause
}

// explain says what an invalid_sequence means. If the service closed the gap, the batch is not
// stored. That happens only below a stored batch: of this publisher, if it sent one above, or else of
// another writer.
func (p *Publisher) explain(f *flight, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != weir.InvalidSequence {
		return err
	}
	above := slices.ContainsFunc(p.window, func(o *flight) bool { return o.seq > f.seq && o.tries > 0 })
	if above && strings.Contains(e.Message, weir.InClosedGap) {
		return fmt.Errorf("%w: %w", ErrTooLate, err)
	}
	return fmt.Errorf("%w: the sequence number can no longer be used: %w", ErrConflict, err)
}

// renumber gives the batches whose gap was closed new sequences: above all that were sent, and below
// those that were not, which move up. It is called while nothing is in flight, so the order of the
// batches that were not stored is kept.
func (p *Publisher) renumber() {
	var sent, again, fresh []*flight
	for _, f := range p.window {
		switch {
		case f.state == closed:
			again = append(again, f)
		case f.tries == 0:
			fresh = append(fresh, f)
		default:
			sent = append(sent, f)
		}
	}
	slices.SortFunc(again, func(a, b *flight) int { return cmp.Compare(a.nth, b.nth) })
	if p.closings = 0; len(fresh) > 0 {
		p.next = fresh[0].seq
	}
	for _, f := range slices.Concat(again, fresh) {
		f.seq, f.state, f.tries, f.ack = p.next, queued, 0, weir.Ack{}
		p.next++
	}
	p.window = slices.Concat(sent, again, fresh)
	p.unsent = slices.IndexFunc(p.window, func(f *flight) bool { return f.state == queued })
}
