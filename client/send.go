package client

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"weir"
)

// How a publisher comes back. While a gap of its own may be open it does not stay away longer than gapRetry, because the
// service closes gaps after a while (D4).
const (
	gapRetry = 250 * time.Millisecond
	maxRetry = 5 * time.Second
)

// send sends what has to be sent, always the lowest sequence first, until the publisher is over. The next one follows when
// the one before it was written: so a connection that breaks has carried a beginning of what was sent over it, and not 5
// without 4, which would leave a gap for as long as the connection is broken.
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
		case next <- a: // somebody is done with another one
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

// attempt is a batch that is sent once.
type attempt struct {
	f       *flight
	once    sync.Once
	written chan struct{} // closed when it is handed to the connection, or will not be
}

func (a *attempt) wrote() { a.once.Do(func() { close(a.written) }) }

// carry makes an attempt, and then others: a goroutine that has grown once is worth keeping.
func (p *Publisher) carry(a *attempt, next <-chan *attempt) {
	for ; a != nil; a = <-next {
		p.attempt(a)
	}
}

// toSend waits for the next batch to send. Nil: there will be none.
func (p *Publisher) toSend() *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.ctx.Err() != nil || p.err != nil {
			return nil
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

// attempt sends a batch once. One that is known to be stored is not sent again: what is left is to look whose it is.
func (p *Publisher) attempt(a *attempt) {
	defer a.wrote()
	f := a.f
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { a.wrote() }}
	ctx := httptrace.WithClientTrace(p.ctx, trace)
	var err error
	if !f.ack.Duplicate {
		f.ack, err = p.try(ctx, a)
	}
	if err == nil && f.ack.Duplicate && f.claim == "" {
		err = p.mine(ctx, f)
	}
	if err == nil {
		p.succeed(f)
	} else {
		p.fail(f, err)
	}
}

// try publishes a batch once.
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

// mine finds out whether what is stored under a sequence is what was sent under it: an answer that got lost is followed by
// one that says duplicate, but so is what another writer stored. Where the batch cannot be read, for lack of permission or
// because it was evicted, only the number of events is compared.
func (p *Publisher) mine(ctx context.Context, f *flight) error {
	if f.tries == 1 && p.o.StartAt == nil {
		return fmt.Errorf("%w: sequence %d was taken before it was sent", ErrConflict, f.seq)
	}
	var got body
	err := p.c.once(ctx, p.transport, batchRequest(p.id, f.seq), &got)
	if err == nil {
		batch, err := got.batch(f.seq)
		if err == nil && !f.holds(batch) {
			err = fmt.Errorf("%w: sequence %d holds something else", ErrConflict, f.seq)
		}
		return err
	}
	switch code := CodeOf(err); {
	case code != weir.ProjectForbidden && code != weir.StreamNotFound:
		return err
	case int(f.ack.Accepted) != f.events:
		return fmt.Errorf("%w: sequence %d holds %d events, and %d were sent", ErrConflict, f.seq, f.ack.Accepted, f.events)
	}
	return nil
}

// passed tells whether a batch that was sent before is refused because the retention of the stream has passed its sequence
// since: nobody could read it any more, and that is no conflict.
func (p *Publisher) passed(ctx context.Context, f *flight) bool {
	err := p.c.once(ctx, p.transport, batchRequest(p.id, f.seq), nil)
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == weir.StreamNotFound && strings.Contains(e.Message, "evicted") // only the message tells (D12)
}

// succeed notes an acknowledgement, and reports those that are next in order.
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
		return // whoever does it will come to this one
	}
	p.settling = true
	for len(p.window) > 0 && p.window[0].state == stored {
		f := p.window[0]
		p.window[0] = nil
		p.window = p.window[1:]
		p.unsent--
		p.ahead--
		p.bytes -= len(f.payload.body)
		p.cutDue()
		p.changed.Broadcast()
		if p.o.OnAck != nil {
			p.mu.Unlock()
			p.o.OnAck(f.ack)
			p.mu.Lock()
		}
		p.settled++
	}
	p.settling = false
	p.changed.Broadcast()
}

// fail takes a batch back to be sent again, or ends the publisher.
func (p *Publisher) fail(f *flight, err error) {
	p.mu.Lock()
	p.sending--
	f.state = queued
	p.unsent = min(p.unsent, int(f.seq-p.window[0].seq))
	p.changed.Broadcast()
	final := !transient(err) || errors.Is(err, ErrConflict)
	if p.ctx.Err() == nil && final {
		p.end(f, explain(err))
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

// end makes the publisher fail. Of several batches that fail the first in order is the one to know of.
func (p *Publisher) end(f *flight, err error) {
	if p.err == nil || f.seq < p.err.Seq {
		p.err = &PublishError{Stream: p.id, Seq: f.seq, Err: err}
	}
	p.changed.Broadcast()
}

// pause is how long to stay away after a failure. What the service asks for counts unless a gap is open, which only waits
// for what failed.
func (p *Publisher) pause(err error) time.Duration {
	sent := 0
	for _, f := range p.window {
		if f.tries > 0 {
			sent++
		}
	}
	most := maxRetry
	if sent > 1 {
		most = gapRetry
	}
	pause := backoff(p.failures, most)
	if asked := retryAfter(err); asked > 0 && p.ahead == 0 {
		pause = max(pause, asked)
	}
	return pause
}

// explain says of a refusal what a publisher knows about it.
func explain(err error) error {
	if CodeOf(err) == weir.InvalidSequence {
		return fmt.Errorf("%w: the sequence is closed: %w", ErrConflict, err)
	}
	return err
}
