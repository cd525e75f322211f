package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"weir"
)

// PublisherOptions say how a publisher groups, numbers and sends. The zero value suits most.
type PublisherOptions struct {
	// StartAt is the sequence of the first batch. Nil means one above the cursor of the stream: a program that is run again
	// goes on where the stream ends.
	StartAt *weir.Seq

	// InFlight is how many batches may be on the way at once: 0 means 64, and 512 is the most.
	InFlight int

	// Buffer is how many bytes may be taken and not acknowledged yet; 0 means 64 MiB. Beyond it, adding waits.
	Buffer int

	// BatchEvents and BatchBytes are when a batch is full: 0 means 1,000 events and 256 KiB. An event that is larger
	// makes a batch of its own.
	BatchEvents int
	BatchBytes  int

	// Linger is how long a batch that is not full waits for more: 0 means 5 ms. Below 0 it waits until it is full or
	// [Publisher.Flush] is called, so that the same events always make the same batches.
	Linger time.Duration

	// GiveUp is for how long nothing may be acknowledged while something is on the way; then the publisher fails. 0 means
	// that it tries for as long as it takes.
	GiveUp time.Duration

	// OnAck is called for every batch that is stored, in order of sequences, by one goroutine at a time. It must not call
	// the publisher.
	OnAck func(weir.Ack)

	// OnRetry is called when something has to be tried again, with the reason, and how long until then. It must not call the
	// publisher, and may be called by several goroutines at once.
	OnRetry func(err error, wait time.Duration)
}

// The defaults and bounds of a publisher.
const (
	defaultInFlight    = 64
	maxInFlight        = weir.MaxAhead / 2 // so that what is on the way is never too far ahead
	defaultBuffer      = 64 << 20
	defaultBatchEvents = 1000
	defaultBatchBytes  = 256 << 10
	defaultLinger      = 5 * time.Millisecond
)

// Errors of a publisher, beside those of the service.
var (
	// ErrConflict means that somebody else publishes to the stream: a sequence holds what this publisher did not send, or is
	// closed. A stream has one publisher at a time; the others use [Client.Publish].
	ErrConflict = errors.New("another writer publishes to the stream")

	// ErrClosed means that the publisher was closed.
	ErrClosed = errors.New("the publisher is closed")

	// ErrGivenUp means that nothing was acknowledged for the time that [PublisherOptions.GiveUp] allows.
	ErrGivenUp = errors.New("given up")
)

// PublishError is why a publisher failed, and with which batch. Batches below Seq may still be on the way when it is
// reported, and batches above it may be stored: after [Publisher.Close], [Publisher.Unacknowledged] has what is not.
type PublishError struct {
	Stream weir.StreamID
	Seq    weir.Seq
	Err    error
}

func (e *PublishError) Error() string { return fmt.Sprintf("publish batch %d: %v", e.Seq, e.Err) }

func (e *PublishError) Unwrap() error { return e.Err }

// Publisher publishes many events to one stream, in the order in which they are added. It may be used by many goroutines
// at once.
//
// Batches are written to one connection in the order of their sequences, each after the one before it was written, and
// answered whenever the service has stored them. What is not answered is sent again under the same sequence, so that it
// is stored once. A refusal that trying again cannot change makes the publisher fail: from then on nothing is sent.
type Publisher struct {
	c         *Client
	id        weir.StreamID
	o         PublisherOptions
	transport http.RoundTripper // of its own, unless the caller brought one
	ctx       context.Context   // ends with Close
	cancel    context.CancelFunc
	work      sync.WaitGroup

	mu       sync.Mutex
	changed  sync.Cond
	mode     weir.Mode // empty: not known yet
	claim    string    // the idempotency key of the first batch, whose sequence the service chooses; empty: it is known
	group    group     // events of the next batch
	window   []*flight // batches that are not acknowledged, in order of sequences, without holes
	unsent   int       // place in the window of the first batch that has to be sent
	bytes    int       // of the bodies in the window
	next     weir.Seq  // of the next batch
	cut      int       // batches that were made
	settled  int       // batches that were acknowledged and reported
	settling bool      // somebody reports acknowledgements
	sending  int       // batches that are on the way
	first    weir.Seq  // where it began
	closed   bool
	err      *PublishError // why it failed

	resend
}

// resend is what a publisher knows of the trouble it is in.
type resend struct {
	epoch    int       // counts troubles: what was sent before one and fails with it is no new one
	failures int       // in a row
	until    time.Time // when to send again
	progress time.Time // when something was acknowledged last, or waiting began
	ahead    int       // acknowledged batches above one that is not: there is a gap
}

// Publisher opens a publisher, which must be closed. It asks for the stream first; the context is for that alone. With a key
// that may publish and not read, the service chooses the sequence of the first batch, and the others follow it.
func (c *Client) Publisher(ctx context.Context, id weir.StreamID, o PublisherOptions) (*Publisher, error) {
	s, err := c.Stream(ctx, id)
	blind := CodeOf(err) == weir.ProjectForbidden
	if err != nil && !blind {
		return nil, err
	}
	o.fill()
	p := &Publisher{c: c, id: id, mode: s.Mode, o: o, transport: c.o.Transport, next: s.Cursor + 1}
	if o.StartAt != nil {
		p.next = *o.StartAt
	} else if blind {
		p.claim = weir.Base62(22)
	}
	p.first = p.next
	p.changed.L = &p.mu
	if p.transport == nil {
		t := c.newTransport(2*time.Second, 3*time.Second)
		t.HTTP2.StrictMaxConcurrentRequests = true // one connection, whatever the service allows
		t.HTTP2.MaxEncoderHeaderTableSize = 1      // every path is another one: remembering each costs more than it saves
		t.DialContext = gathering(t.DialContext)
		p.transport = t
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.work.Go(p.send)
	return p, nil
}

func (o *PublisherOptions) fill() {
	or := func(v *int, otherwise int) {
		if *v <= 0 {
			*v = otherwise
		}
	}
	or(&o.InFlight, defaultInFlight)
	o.InFlight = min(o.InFlight, maxInFlight)
	or(&o.Buffer, defaultBuffer)
	or(&o.BatchEvents, defaultBatchEvents)
	or(&o.BatchBytes, defaultBatchBytes)
	o.BatchBytes = min(o.BatchBytes, weir.MaxBody)
	if o.Linger == 0 {
		o.Linger = defaultLinger
	}
}

// Add adds an event to a json stream; it is what [Event] makes of it. It returns once the event is taken, which takes as
// long as the service needs to keep up; [Publisher.Flush] tells when it is stored. An error that is no *PublishError is
// about this event alone, which was not taken.
func (p *Publisher) Add(ctx context.Context, event any) error {
	b, err := Event(event)
	if err != nil {
		return err
	}
	return p.AddEvent(ctx, b)
}

// AddEvent is [Publisher.Add] for an event that [Event] made already.
func (p *Publisher) AddEvent(ctx context.Context, event json.RawMessage) error {
	if n := len(bodyStart) + len(event) + len(bodyEnd); n > weir.MaxBody {
		return tooLarge(n)
	}
	return p.take(ctx, weir.JSON, func() bool { return p.group.add(event, &p.o) })
}

// AddBytes adds a batch to a raw stream. It takes a copy.
func (p *Publisher) AddBytes(ctx context.Context, b []byte) error {
	if len(b) > weir.MaxBody {
		return tooLarge(len(b))
	}
	return p.take(ctx, weir.Raw, func() bool { return p.group.set(b) })
}

// take calls add, which tells whether there was room, until there was.
func (p *Publisher) take(ctx context.Context, mode weir.Mode, add func() bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == "" {
		p.mode = mode
	}
	if p.mode != mode {
		return weir.Errorf(weir.UnsupportedMediaType, "the stream is %s: it takes %s", p.mode, map[weir.Mode]string{
			weir.JSON: "events", weir.Raw: "bytes",
		}[p.mode])
	}
	err := p.wait(ctx, func() bool {
		if p.err != nil || p.closed || add() {
			return true
		}
		p.group.due = true
		p.cutDue()
		return add()
	})
	switch {
	case p.err != nil:
		return p.err
	case p.closed:
		return ErrClosed
	case err != nil:
		return err
	}
	p.linger()
	p.cutDue()
	return nil
}

// wait waits, with the lock, until something holds; it is looked at whenever something changed.
func (p *Publisher) wait(ctx context.Context, holds func() bool) error {
	if holds() {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})
	defer stop()
	for !holds() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.changed.Wait()
	}
	return nil
}

// Flush waits until everything that was added before is stored, or the publisher failed.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flush(ctx)
}

func (p *Publisher) flush(ctx context.Context) error {
	mark := p.cut
	if p.group.some() {
		mark++
		p.group.due = true
		p.cutDue()
	}
	err := p.wait(ctx, func() bool { return p.err != nil || p.settled >= mark })
	if p.settled >= mark {
		return nil
	}
	if p.err != nil {
		return p.err
	}
	return err
}

// Close stores what was added, as Flush does, and ends the publisher. When the context ends first, or the publisher failed,
// what is not acknowledged may be stored or not. Nothing of the publisher is left when it returns.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.work.Wait()
		return ErrClosed
	}
	p.closed = true
	err := p.flush(ctx)
	if p.err != nil { // what is on the way is no longer sent again, but its answers still count
		_ = p.wait(ctx, func() bool { return p.sending == 0 })
		err = p.err
	}
	p.group.stop()
	p.changed.Broadcast()
	p.mu.Unlock()
	p.cancel()
	p.work.Wait()
	if p.c.o.Transport == nil {
		closeIdle(p.transport)
	}
	return err
}

// Acknowledged is the highest sequence up to which everything of this publisher is stored, false when nothing is.
func (p *Publisher) Acknowledged() (weir.Seq, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	below := p.next
	if len(p.window) > 0 {
		below = p.window[0].seq
	}
	if below == p.first {
		return 0, false
	}
	return below - 1, true
}

// Unacknowledged are batches that were added and not acknowledged, in order: after Close, what a failure left. Whether one
// that was sent is stored is not known; its sequence can be looked up with [Client.Batch].
func (p *Publisher) Unacknowledged() []Unacknowledged {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []Unacknowledged
	for _, f := range p.window {
		if f.state != stored {
			list = append(list, f.unacknowledged(p.mode))
		}
	}
	if p.group.some() {
		f := p.group.flight(p.next, p.mode)
		list = append(list, f.unacknowledged(p.mode))
	}
	return list
}

// Unacknowledged is a batch whose fate is open.
type Unacknowledged struct {
	Seq    weir.Seq // that it was or would have been sent under
	Sent   bool     // at least once
	Events []json.RawMessage
	Data   []byte // of a raw stream
}
