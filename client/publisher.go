package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"weir"
)

// PublisherOptions configure a [Publisher]. The zero value is a good default.
type PublisherOptions struct {
	// StartAt is the sequence number of the first batch: at most the stream's cursor + 1. Nil means
	// the cursor + 1, so that a program that is restarted continues where the stream ends.
	//
	// A program that sets StartAt can repeat an interrupted run: if a number already holds a batch
	// with the same content, the publisher continues with the next number. It reads the stored
	// batch to compare the content, so the key must be allowed to read.
	StartAt *weir.Seq

	// OnEvicted, if not nil, is called for each batch whose sequence number the stream has already
	// evicted. The publisher then continues without storing that batch. A repeated run needs
	// OnEvicted, because its first batches may have been evicted since they were stored. If
	// OnEvicted is nil, the publisher fails with [ErrEvicted]. OnEvicted is called like OnAck, and
	// has no effect without StartAt.
	OnEvicted func(weir.Seq)

	// InFlight is the maximum number of batches in flight, up to 512. 0 means 128, or 64 over
	// cleartext HTTP/1.1, where each batch in flight takes a connection. On a slow connection the
	// publisher keeps fewer batches in flight, so that each arrives within seconds.
	InFlight int

	// Buffer is the maximum number of unacknowledged bytes; 0 means 64 MiB. Add waits while the
	// buffer is full.
	Buffer int

	// BatchEvents and BatchBytes are the size of a full batch; 0 means 1,000 events and 256 KiB. An
	// event larger than BatchBytes becomes a batch of its own.
	BatchEvents int
	BatchBytes  int

	// Linger is how long a batch that is not full waits for more events; 0 means 5 ms. If Linger is
	// negative, a batch waits until it is full or [Publisher.Flush] is called, so that the same
	// events always form the same batches.
	Linger time.Duration

	// GiveUp is the maximum time without an acknowledgement while batches wait for one. After this
	// time the publisher fails with [ErrGivenUp]. 0 means that the publisher retries forever.
	// Opening the publisher is retried for the same time, or for [Options.Retry] if GiveUp is 0.
	GiveUp time.Duration

	// OnAck is called for every stored batch, in order of sequence number and never concurrently.
	// OnAck must not call the publisher.
	OnAck func(weir.Ack)

	// OnRetry is called before a retry, with the reason and the time until the retry. OnRetry may
	// be called concurrently, and must not call the publisher.
	OnRetry func(err error, wait time.Duration)
}

// The defaults and limits of a publisher.
const (
	defaultInFlight    = 128
	defaultConnections = 64                // the default of InFlight over cleartext HTTP/1.1
	maxInFlight        = weir.MaxAhead / 2 // low enough that the service never refuses a batch as too far ahead
	defaultBuffer      = 64 << 20
	defaultBatchEvents = 1000
	defaultBatchBytes  = 256 << 10
	defaultLinger      = 5 * time.Millisecond
)

// Errors of a publisher, in addition to those of the service.
var (
	// ErrTaken means that a sequence number holds a batch of another publisher, so this batch is
	// not stored. A stream can have one publisher at a time; other writers must use
	// [Client.Publish]. To continue, open a new publisher, which starts above the cursor, and add
	// the unacknowledged batches again.
	ErrTaken = errors.New("the sequence number is taken by another publisher")

	// ErrGapClosed means that the batch is not stored and never will be under its sequence number:
	// another writer published above this number, and the service closed the gap (D4). If the
	// publisher knows that none of its unacknowledged batches is stored, it gives new numbers to all
	// of them and continues. Otherwise it fails, and batches above this one may have been stored:
	// find out which of the unacknowledged batches are stored before you add the others again.
	ErrGapClosed = errors.New("the sequence number is in a closed gap")

	// ErrEvicted means that the stream has evicted the sequence number of a batch, so that the
	// outcome is unknown. Either the batch was stored earlier and its acknowledgement was lost, or
	// another writer used the number. [Publisher.Unacknowledged] includes the batch. Do not add it
	// again without checking whether subscribers got it.
	ErrEvicted = errors.New("the sequence number is evicted; the batch may have been stored before")

	// ErrReset means that the stream is no longer the one that the publisher published to: it was
	// deleted and created again, or restored from a backup that lacks acknowledged batches.
	ErrReset = errors.New("the stream was created again or restored from a backup")

	// ErrUnsupported means that the service does not answer with the publisher's name (D38). Either
	// the service is older than this client, or a proxy removes the header field x-svc-publisher.
	// Without the name, the publisher cannot tell its own batches from those of other publishers.
	ErrUnsupported = errors.New("the service does not support x-svc-publisher")

	// ErrClosed means that the publisher was closed.
	ErrClosed = errors.New("the publisher is closed")

	// ErrGivenUp means for a publisher that the service acknowledged nothing, or could not be
	// reached, for the time in [PublisherOptions.GiveUp]. For a subscriber it means that its first
	// connection could not be opened for the time in [SubscriberOptions.GiveUp].
	ErrGivenUp = errors.New("gave up")
)

// PublishError says why a publisher failed, and on which batch. When the error is reported, batches
// below Seq may still be in flight, and batches above Seq may already be stored. After
// [Publisher.Close], [Publisher.Unacknowledged] returns the batches that were not acknowledged.
type PublishError struct {
	Stream weir.StreamID
	Seq    weir.Seq
	Err    error
}

func (e *PublishError) Error() string { return fmt.Sprintf("publish batch %d: %v", e.Seq, e.Err) }

func (e *PublishError) Unwrap() error { return e.Err }

// Publisher publishes many events to one stream, in the order in which they are added. It is safe
// for concurrent use. When [Publisher.Flush] or [Publisher.Close] returns nil, all events that were
// added before are stored.
//
// The publisher writes batches in the order of their sequence numbers, and does not wait for a
// batch to be acknowledged before it writes the next. If a batch gets no response, the publisher
// sends it again with the same number, so that it is stored only once. The service stores a batch of
// this publisher only after the batch before it (D38). Therefore it stores the batches in order
// and without gaps, however connections break. Each batch carries the publisher's random name, by
// which the publisher recognises a batch whose acknowledgement was lost. If the service refuses a
// batch and a retry cannot help, the publisher fails and sends nothing more. A broken connection,
// or a response that is not from Weir, never makes the publisher fail before the time in
// [PublisherOptions.GiveUp].
type Publisher struct {
	c      *Client
	id     weir.StreamID
	o      PublisherOptions
	name   string          // random name, stored with each batch (D38)
	own    transports      // connections that are not shared with other publishers
	ctx    context.Context // ends with Close, or when the publisher gives up
	cancel context.CancelFunc
	work   sync.WaitGroup
	done   chan struct{} // closed when the publisher has failed or is closed
	finish func()        // closes done

	mu       sync.Mutex
	changed  sync.Cond     // signals a change of any field below
	sendable sync.Cond     // wakes the goroutine that sends batches
	mode     weir.Mode     // empty until it is known
	created  string        // when the stream was created (D39); empty until it is known
	claim    string        // idempotency key of the first batch in window if the service chooses its number; empty once the number is known
	group    group         // events of the next batch
	window   []*flight     // batches that are not settled (acknowledged and reported), in order of sequence
	unsent   int           // index in window of the first batch to send
	bytes    int           // total size of the bodies in window
	next     weir.Seq      // sequence of the next batch
	cut      int           // number of batches formed so far
	settling bool          // a goroutine is reporting acknowledgements
	reported int           // the field nth of the batch that the settling goroutine is reporting; 0 if there is none
	sending  int           // number of batches in flight
	flying   int           // total size of the bodies in flight
	first    weir.Seq      // sequence of the first batch
	closed   bool          // Close was called
	over     bool          // Close has flushed, or has given up waiting: nothing more will be stored
	err      *PublishError // why the publisher failed; nil if it has not
	refusal  *PublishError // set when a batch is refused because its number is in a closed gap, until the batches have new numbers; nil otherwise

	load
	resend
}

// resend is the retry state of a publisher.
type resend struct {
	// epoch counts failures. One failure of the connection fails all batches in flight. The first
	// failed batch increases epoch. The other batches were sent in an older epoch, which shows that
	// they belong to the same failure. Therefore the publisher reports each failure once and pauses
	// once.
	epoch    int
	failures int         // number of failures in a row
	until    time.Time   // nothing is sent before this time
	since    time.Time   // time of the last acknowledgement, or time at which a batch entered the empty window
	last     error       // the last failure
	clock    int         // counts attempts and refusals, so that they can be put in order
	refused  int         // value of clock at the last refusal of a batch whose predecessor was missing
	alarm    *time.Timer // calls ring
	rings    time.Time   // when alarm fires; zero if it is not set
}

// Publisher opens a publisher. The caller must close it. The call first fetches the stream, and ctx
// applies only to this request. If the key may publish but not read, the service chooses the
// sequence number of the first batch, and the publisher numbers the following batches from there.
func (c *Client) Publisher(ctx context.Context, id weir.StreamID, o PublisherOptions) (*Publisher, error) {
	s, err := c.describe(ctx, id, &o)
	blind := CodeOf(err) == weir.ProjectForbidden
	if err != nil && !blind {
		return nil, err
	}
	o.fill(c.versions.http1.Load())
	p := &Publisher{c: c, id: id, name: weir.Base62(22), mode: s.Mode, o: o, next: s.Cursor + 1, done: make(chan struct{})}
	p.finish = sync.OnceFunc(func() { close(p.done) })
	if !blind {
		p.created = s.CreatedAt.String()
	}
	if o.StartAt != nil {
		p.next = *o.StartAt
	} else if blind {
		p.claim = weir.Base62(22)
	}
	p.first = p.next
	p.changed.L, p.sendable.L = &p.mu, &p.mu
	p.load = load{most: firstLoad, patience: mostPatience}
	p.own = transports{c: c, make: func(http1 bool) http.RoundTripper {
		t := c.newTransport(http1)
		t.HTTP2.StrictMaxConcurrentRequests = true // never open a second connection, because the batches would get out of order
		// Every path, request id and cursor differs, so storing them in the header tables costs
		// more than it saves. The encoder's table is for requests, the decoder's for responses. The
		// size is 1, because 0 would mean the default.
		t.HTTP2.MaxEncoderHeaderTableSize, t.HTTP2.MaxDecoderHeaderTableSize = 1, 1
		t.DialContext = gathering(t.DialContext)
		if address, ok := c.clearAddress(); ok && !http1 {
			return newSingle(t, address)
		}
		return t
	}}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.alarm = time.AfterFunc(time.Hour, p.ring) // the method ringBy later sets the real time
	p.work.Go(p.send)
	return p, nil
}

// describe fetches the stream for a new publisher. If GiveUp is set, describe ends after that time
// even if an attempt hangs.
func (c *Client) describe(ctx context.Context, id weir.StreamID, o *PublisherOptions) (s described, err error) {
	s.id = id
	r := &request{method: "GET", path: streamPath(id)}
	if o.GiveUp <= 0 {
		_, err = c.repeat(ctx, r, &s, c.o.Retry, o.OnRetry)
		return s, err
	}
	within, cancel := context.WithTimeout(ctx, o.GiveUp)
	defer cancel()
	var last error // if the time ends during an attempt, the error of the attempt before it is the reason
	_, err = c.repeat(within, r, &s, o.GiveUp, func(err error, pause time.Duration) {
		if last = err; o.OnRetry != nil {
			o.OnRetry(err, pause)
		}
	})
	switch {
	case err == nil || ctx.Err() != nil || within.Err() == nil && !c.transient(err):
		return s, err
	case within.Err() != nil && last != nil:
		err = last
	}
	return s, fmt.Errorf("%w after %v without a response: %w", ErrGivenUp, o.GiveUp, err)
}

// fill sets the defaults. The parameter http1 says whether the client uses cleartext HTTP/1.1.
func (o *PublisherOptions) fill(http1 bool) {
	or := func(v *int, otherwise int) {
		if *v <= 0 {
			*v = otherwise
		}
	}
	if http1 {
		or(&o.InFlight, defaultConnections)
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

// Add adds an event to a json stream. It encodes the event with [Event]. Add returns once the event
// is buffered, and waits while the buffer is full. [Publisher.Flush] waits until the event is
// stored. A [*PublishError] means that the publisher has failed, and [ErrClosed] that it is closed.
// Any other error concerns only this event, which was not added.
func (p *Publisher) Add(ctx context.Context, event any) error {
	b, err := Event(event)
	if err != nil {
		return err
	}
	return p.AddEvent(ctx, b)
}

// AddEvent is like [Publisher.Add], for an event that [Event] has already encoded.
func (p *Publisher) AddEvent(ctx context.Context, event json.RawMessage) error {
	if n := len(bodyStart) + len(event) + len(bodyEnd); n > weir.MaxBody {
		return tooLarge(n)
	}
	return p.take(ctx, weir.JSON, func() bool { return p.group.add(event, &p.o) })
}

// AddBytes adds a batch to a raw stream. It copies b. Otherwise AddBytes is like [Publisher.Add].
func (p *Publisher) AddBytes(ctx context.Context, b []byte) error {
	if len(b) > weir.MaxBody {
		return tooLarge(len(b))
	}
	return p.take(ctx, weir.Raw, func() bool { return p.group.set(b) })
}

// take calls the function add until that returns true. The function returns false while the batch
// that is being filled has no room for the event.
func (p *Publisher) take(ctx context.Context, mode weir.Mode, add func() bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == "" {
		p.mode = mode
	}
	if p.mode != mode {
		return weir.Errorf(weir.UnsupportedMediaType, "the stream is %s; use %s", p.mode, map[weir.Mode]string{
			weir.JSON: "Add or AddEvent", weir.Raw: "AddBytes",
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

// wait waits until condition returns true, or ctx ends. The caller holds p.mu, which wait releases
// while it sleeps. wait calls condition after every change.
func (p *Publisher) wait(ctx context.Context, condition func() bool) error {
	if condition() {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})
	defer stop()
	for !condition() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.changed.Wait()
	}
	return nil
}

// Flush sends the current batch even if it is not full, and waits until everything added before the
// call is stored. It returns an error if the publisher fails or ctx ends first, and [ErrClosed] if
// the publisher was closed before everything was stored.
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
	err := p.wait(ctx, func() bool { return p.err != nil || p.over || p.settled(mark) })
	switch {
	case p.settled(mark):
		return nil
	case p.err != nil:
		return p.err
	case p.over:
		return ErrClosed
	}
	return err
}

// settled reports whether the first n batches of this publisher are acknowledged and have been
// reported to OnAck.
func (p *Publisher) settled(n int) bool {
	return p.cut >= n && (p.reported == 0 || p.reported > n) &&
		!slices.ContainsFunc(p.window, func(f *flight) bool { return f.nth <= n })
}

// Close flushes the publisher and closes it. It returns nil if everything that was added is stored.
// If ctx ends first, or the publisher has failed, batches that are not acknowledged may or may not
// be stored: see [Publisher.Unacknowledged]. When Close returns, the publisher's goroutines have
// ended and its own connections are closed.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		err := p.wait(ctx, func() bool { return p.over })
		p.mu.Unlock()
		if err != nil {
			return err // an earlier call of Close is still waiting
		}
		p.work.Wait()
		return ErrClosed
	}
	p.closed = true
	err := p.flush(ctx)
	if p.err != nil { // batches in flight are not sent again, but their acknowledgements still count
		_ = p.wait(ctx, func() bool { return p.sending == 0 })
		err = p.err
	}
	p.over = true
	p.finish()
	p.group.stop()
	p.alarm.Stop()
	p.changed.Broadcast()
	p.mu.Unlock()
	p.cancel()
	p.work.Wait()
	if p.c.o.Transport == nil {
		p.own.close()
	}
	return err
}

// Done returns a channel that is closed when the publisher has failed or is closed. A program that
// rarely adds events can watch this channel to learn of a failure at once. [Publisher.Err] returns
// the reason.
func (p *Publisher) Done() <-chan struct{} { return p.done }

// Err returns why the publisher failed, as a [*PublishError], or nil if it has not failed.
func (p *Publisher) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return nil
	}
	return p.err
}

// Acknowledged returns the highest sequence number up to which all batches of this publisher are
// stored. It returns false if no batch is stored yet.
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

// Unacknowledged returns the batches that were added and not acknowledged, in order. After a failed
// Close, only these batches can be missing from the stream. A batch that was sent may already be
// stored: to find out, fetch it by its number with [Client.Batch]. If the batch has a Key, its
// number is not known: pass the batch and the key to [Client.PublishOnce], which does not store the
// batch a second time.
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

// Unacknowledged is a batch that may or may not be stored.
type Unacknowledged struct {
	Seq    weir.Seq // sequence number under which the batch was sent or would have been sent; without meaning if Key is set
	Key    string   // if not empty, the service was to choose the number; to store the batch exactly once, pass this key to Client.PublishOnce
	Sent   bool     // whether the batch was sent at least once; if not, it is not stored
	Events []json.RawMessage
	Data   []byte // the payload, for a raw stream
}
