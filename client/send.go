package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"

	"weir"
)

// The longest pauses before a retry. The first applies after the service refused a batch or could
// not be reached, the second after a connection broke.
const (
	maxRetry  = 5 * time.Second
	maxReopen = 500 * time.Millisecond
)

// send sends batches until the publisher ends, always the lowest sequence number first. It starts a
// batch only when the previous one has been written to the connection, so that the service receives
// the batches in order. The service would refuse a batch that arrives before its predecessor, and
// the publisher would have to send it again (D38).
func (p *Publisher) send() {
	stop := context.AfterFunc(p.ctx, p.wake)
	defer stop()
	next, written := make(chan *attempt), make(chan struct{}, 1)
	defer close(next)
	for {
		f := p.toSend()
		if f == nil {
			return
		}
		a := &attempt{f: f, written: written}
		select {
		case next <- a: // an idle goroutine takes the attempt
		default:
			p.work.Go(func() { p.carry(a, next) })
		}
		select {
		case <-written:
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *Publisher) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sendable.Signal()
}

// notify signals a change. It wakes the goroutine that sends batches only if that goroutine may have
// something to do, because waking it for nothing after every acknowledgement is expensive.
func (p *Publisher) notify() {
	p.changed.Broadcast()
	if p.unsent < len(p.window) || p.err != nil {
		p.sendable.Signal()
	}
}

// attempt is one attempt to send a batch.
type attempt struct {
	f       *flight
	once    sync.Once
	written chan<- struct{} // gets a value when the batch has been written to the connection, or the attempt has ended
}

// wrote tells the method send, once, that it may start the next attempt. It never blocks: the
// channel has room for one value, and send takes the value of each attempt before it starts the
// next.
func (a *attempt) wrote() { a.once.Do(func() { a.written <- struct{}{} }) }

// carry makes an attempt, and then takes further attempts from the channel next. Reusing the
// goroutine avoids growing a new stack for each attempt.
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
		if p.refusal != nil && p.sending == 0 {
			p.renumber()
			continue
		}
		if p.refusal == nil && p.unsent < len(p.window) && p.ready(p.unsent) {
			if p.until.IsZero() {
				break
			}
			pause := time.Until(p.until)
			if pause <= 0 {
				break
			}
			alarm := time.AfterFunc(pause, p.wake)
			p.sendable.Wait()
			alarm.Stop()
			continue
		}
		p.sendable.Wait()
	}
	f := p.window[p.unsent]
	p.clock++
	f.state, f.epoch, f.sent, f.began, f.lowest = flying, p.epoch, p.clock, time.Now(), p.unsent == 0
	f.tries++
	p.sending++
	p.flying += len(f.payload.body)
	p.advance()
	return f
}

// advance moves the index unsent to the next batch that must be sent.
func (p *Publisher) advance() {
	for p.unsent < len(p.window) && p.window[p.unsent].state != queued {
		p.unsent++
	}
}

// ready reports whether the batch at index i of the window can be sent now. The connection must
// have room for it. If the service refused the batch because its predecessor was missing, the
// predecessor must be stored by now or have been sent again.
func (p *Publisher) ready(i int) bool {
	f := p.window[i]
	if p.sending > 0 && (p.claim != "" || p.flying >= p.load.most) { // with a claim, the numbers of the other batches are not known yet
		return false
	}
	if f.early == 0 || i == 0 {
		return true
	}
	before := p.window[i-1]
	return before.state == stored || before.state == evicted || before.sent > f.early
}

// attempt sends a batch once.
func (p *Publisher) attempt(a *attempt) {
	f := a.f
	p.mu.Lock()
	ctx, progress := unwatched(p.ctx, min(p.load.patience, p.c.o.Timeout))
	f.stop, f.progress = progress.cancel, progress
	p.ringBy(f.began.Add(progress.limit))
	p.mu.Unlock()
	defer progress.stop()
	trace := progress.trace(&httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) {
		// If there was an error, the batch was not written. The next batch must then wait until
		// this batch is queued again, so that it cannot overtake this batch.
		if i.Err == nil {
			a.wrote()
		}
	}})
	ack, err := p.try(httptrace.WithClientTrace(ctx, trace), a, progress)
	if err == nil {
		p.succeed(f, ack)
	} else {
		p.fail(f, progress.explain(ctx, err))
	}
	a.wrote()
}

// try publishes a batch once, and verifies that the batch stored under its number is this batch.
func (p *Publisher) try(ctx context.Context, a *attempt, progress *progress) (weir.Ack, error) {
	f := a.f
	r, got := publishAt(p.id, f.seq, f.payload), &receipt{stream: p.id, seq: &f.seq}
	r.publisher = p.name
	if f.claim != "" {
		r, got = publishNext(p.id, f.claim, f.payload), &receipt{stream: p.id}
	}
	r.sent = a.wrote
	header, err := p.c.exchange(ctx, p.own.get(), r, got, progress)
	if err != nil {
		return got.Ack, err
	}
	if err := p.compare(field(header, weir.HeaderStreamCreated)); err != nil {
		return got.Ack, err
	}
	if f.claim != "" { // with an idempotency key, a duplicate can only be this batch
		return got.Ack, nil
	}
	switch name := field(header, weir.HeaderPublisher); {
	case name == p.name:
		return got.Ack, nil
	case name == "" && !got.Duplicate:
		return got.Ack, permanent{ErrUnsupported}
	case p.o.StartAt != nil:
		return got.Ack, p.same(ctx, f)
	}
	return got.Ack, permanent{ErrTaken}
}

// field is like http.Header.Get, but requires a name in canonical form. Get would check the form of
// the name each time.
func field(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// compare returns ErrReset if the creation time in an acknowledgement shows that the
// acknowledgement is for another stream with the same id (D39). An empty creation time shows
// nothing: a proxy may have removed the header field.
func (p *Publisher) compare(created string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.created == "" {
		p.created = created
	}
	if created != "" && created != p.created {
		return permanent{fmt.Errorf("%w: it was created at %s, but the stream that this publisher started with at %s", ErrReset, created, p.created)}
	}
	return nil
}

// same compares the batch f with the batch that another publisher, such as an earlier run of the
// program, has stored under the sequence of f. It returns an error unless both have the same
// content.
func (p *Publisher) same(ctx context.Context, f *flight) error {
	got := fetched{seq: f.seq}
	_, err := p.c.once(ctx, p.own.get(), batchRequest(p.id, f.seq), &got)
	switch CodeOf(err) {
	case weir.ProjectForbidden:
		return permanent{fmt.Errorf("%w, and the key lacks the permission to read the stored batch and compare it", ErrTaken)}
	case weir.StreamNotFound: // the batch was evicted after the service reported it as a duplicate
		return permanent{fmt.Errorf("%w: %w", ErrEvicted, err)}
	}
	if err == nil && !f.holds(got.batch) {
		err = permanent{fmt.Errorf("%w: it holds a different batch", ErrTaken)}
	}
	return err
}

// succeed records an acknowledgement.
func (p *Publisher) succeed(f *flight, ack weir.Ack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.landed(f)
	f.state, f.ack = stored, ack
	if f.claim != "" {
		if f.nth == 1 {
			p.first = ack.Seq
		}
		p.next, p.claim = ack.Seq, ""
		for _, f := range p.window[slices.Index(p.window, f):] {
			f.seq = p.next
			p.next++
		}
	}
	p.load.arrived(len(f.payload.body), time.Since(f.began), p.o.Buffer)
	p.failures, p.until = 0, time.Time{}
	p.settle()
}

// landed records that an attempt has ended.
func (p *Publisher) landed(f *flight) {
	p.sending--
	p.flying -= len(f.payload.body)
	f.stop, f.progress = nil, nil
	p.notify()
}

// settle reports acknowledged batches to OnAck in order. It stops at the first batch that is not
// acknowledged.
func (p *Publisher) settle() {
	p.since = time.Now()
	p.schedule()
	if p.settling {
		return // the goroutine that is already reporting will report these batches too
	}
	p.settling = true
	for len(p.window) > 0 && (p.window[0].state == stored || p.window[0].state == evicted) {
		f := p.window[0]
		p.window[0] = nil
		p.window = p.window[1:]
		p.unsent--
		p.bytes -= len(f.payload.body)
		p.reported = f.nth
		p.cutDue()
		p.notify()
		report := func() {
			if p.o.OnAck != nil {
				p.o.OnAck(f.ack)
			}
		}
		if f.state == evicted {
			report = func() { p.o.OnEvicted(f.seq) }
		}
		// OnAck runs without the lock, so that a slow callback does not block Add. The settling
		// flag ensures that only one goroutine gets here at a time, which preserves the order.
		p.mu.Unlock()
		report()
		p.mu.Lock()
		p.reported = 0
	}
	p.settling = false
	p.notify()
}

// fail queues a batch to be sent again, or makes the publisher fail.
func (p *Publisher) fail(f *flight, err error) {
	p.mu.Lock()
	p.clock++
	f.state = queued
	p.unsent = min(p.unsent, slices.Index(p.window, f)) // must be set before landed wakes the sending goroutine
	p.landed(f)
	code := CodeOf(err)
	f.unsure = f.unsure || code != weir.SequenceNotNext && code != weir.InvalidSequence && code != weir.RateLimited
	var silent bool // the batch is sent again without a pause and without a call of OnRetry
	switch {
	case p.ctx.Err() != nil:
		p.mu.Unlock()
		return
	case CodeOf(err) == weir.SequenceNotNext && !f.lowest:
		f.early, p.refused, silent = p.clock, p.clock, true
		p.schedule()
	case errors.Is(err, errOvertaken):
		silent = true
	case CodeOf(err) == weir.InvalidSequence || errors.Is(err, ErrEvicted):
		if err = explain(err); errors.Is(err, ErrEvicted) && p.o.StartAt != nil && p.o.OnEvicted != nil {
			f.state = evicted
			p.advance()
			p.settle()
			p.mu.Unlock()
			return
		}
		if silent = p.postpone(f, err); !silent {
			p.end(f, err)
		}
	case CodeOf(err) == weir.SequenceNotNext:
		p.end(f, p.notNext(f, err))
	case !p.c.transient(err):
		if inner, ok := errors.AsType[permanent](err); ok {
			err = inner.error
		}
		p.end(f, err)
	}
	if p.err != nil || silent {
		p.mu.Unlock()
		return
	}
	p.last = err
	report := f.epoch == p.epoch
	pause := time.Duration(0)
	if report {
		p.epoch++
		p.failures++
		p.load.broke(err)
		most := maxRetry
		if _, answered := errors.AsType[*Error](err); !answered && lost(err) {
			most = maxReopen
		}
		pause = max(backoff(p.failures, most), retryAfter(err))
		if until := time.Now().Add(pause); until.After(p.until) {
			p.until = until
		}
	}
	p.mu.Unlock()
	if report && p.o.OnRetry != nil {
		p.o.OnRetry(err, pause)
	}
}

// notNext returns the error for a batch that the service refused with sequence_not_next, although
// all batches below it were acknowledged when it was sent.
func (p *Publisher) notNext(f *flight, err error) error {
	if f.seq == p.first {
		return fmt.Errorf("the batch would leave a gap: the first sequence number must be at most the stream's cursor plus one: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrReset, err)
}

// explain turns an invalid_sequence error of the service into the publisher's error, ErrGapClosed
// or ErrEvicted. It also unwraps the ErrEvicted that the method same returns.
func explain(err error) error {
	if inner, ok := errors.AsType[permanent](err); ok {
		return inner.error
	}
	e, ok := errors.AsType[*Error](err)
	if ok && (strings.Contains(e.Message, weir.InClosedGap) || strings.Contains(e.Message, "sequence 0 is closed")) {
		return fmt.Errorf("%w: %w", ErrGapClosed, err)
	}
	return fmt.Errorf("%w: %w", ErrEvicted, err)
}

// end makes the publisher fail. If several batches fail, the publisher keeps the error of the batch
// with the lowest sequence number.
func (p *Publisher) end(f *flight, err error) {
	p.finish()
	if p.err == nil || f.seq < p.err.Seq {
		p.err = &PublishError{Stream: p.id, Seq: f.seq, Err: err}
	}
	p.notify()
}
