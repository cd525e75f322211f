package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"weir"
)

// From is where a subscription begins. The zero value is [Head].
type From struct {
	start start
	seq   weir.Seq
}

type start uint8

const (
	head start = iota
	oldest
	after
)

var (
	Head   = From{}              // above the cursor of now: what is published from now on
	Oldest = From{start: oldest} // the oldest batch that is kept
)

// After begins with the first batch above a sequence: one that was seen in another run, for example.
func After(seq weir.Seq) From { return From{after, seq} }

// SubscriberOptions say where a subscription begins and how it is kept up.
type SubscriberOptions struct {
	From From

	// Silence is for how long nothing may come, not even a heartbeat, until the connection is taken for dead; 0 means 45 s,
	// which is three heartbeats of a service with its usual settings.
	Silence time.Duration

	// OnRetry is called when the connection is lost or cannot be made, with the reason, and how long until the next try. It
	// is called by the goroutine that ranges over the batches.
	OnRetry func(err error, wait time.Duration)
}

// Subscriber follows a stream. It is used by one goroutine at a time.
type Subscriber struct {
	c     *Client
	id    weir.StreamID
	o     SubscriberOptions
	from  From          // moves on with what was yielded
	retry time.Duration // before a lost connection is made again, as the service wants it
}

// The bounds of waiting for a connection. The first is what browsers do where the service has no wish.
const (
	defaultRetry  = time.Second
	maxReconnect  = 30 * time.Second
	silentDefault = 45 * time.Second
)

// Subscriber makes a subscriber. It connects when it is ranged over.
func (c *Client) Subscriber(id weir.StreamID, o SubscriberOptions) *Subscriber {
	if o.Silence <= 0 {
		o.Silence = silentDefault
	}
	return &Subscriber{c: c, id: id, o: o, from: o.From, retry: defaultRetry}
}

// Position is after which sequence the subscriber goes on, false as long as that is still open: nothing was yielded yet,
// and it began at the head or at the oldest batch. A program that keeps it goes on with [After] in its next run.
func (s *Subscriber) Position() (weir.Seq, bool) { return s.from.seq, s.from.start == after }

// Batches yields every batch from the start on, once and in order of sequences, for as long as it takes. It comes back by
// itself when the connection is lost or the service restarts. A loss is yielded as a Batch with a Gap. The iteration ends
//
//   - without an error when the stream was deleted,
//   - with the context's error when that ends,
//   - with an error of the service that is final, such as an unknown stream or a revoked key.
//
// Whoever leaves the loop and ranges again goes on after the last batch that was yielded.
func (s *Subscriber) Batches(ctx context.Context) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for failures := 0; ; {
			over, err := s.follow(ctx, yield, &failures)
			if over {
				return
			}
			if ctx.Err() != nil {
				yield(Batch{}, ctx.Err())
				return
			}
			if !transient(err) {
				yield(Batch{}, err)
				return
			}
			failures++
			pause := s.pause(failures, err)
			if s.o.OnRetry != nil {
				s.o.OnRetry(err, pause)
			}
			if err := wait(ctx, pause); err != nil {
				yield(Batch{}, err)
				return
			}
		}
	}
}

// pause is how long to stay away: as long as the service wants after a first failure, longer after each that follows, and
// a random bit more, since everybody else was told the same.
func (s *Subscriber) pause(failures int, err error) time.Duration {
	d := retryAfter(err)
	if d == 0 {
		d = s.retry
		for range min(failures-1, 10) {
			d = min(2*d, max(maxReconnect, s.retry))
		}
	}
	return d + rand.N(d/2+1)
}

var errSilent = errors.New("nothing came for too long, not even a heartbeat")

// follow connects once and yields what comes. It returns true when the iteration is over: the caller left, or the stream
// was deleted. Otherwise the error says why the connection ended.
func (s *Subscriber) follow(ctx context.Context, yield func(Batch, error) bool, failures *int) (over bool, err error) {
	if s.from.start == head {
		// Resolved here and not by the service: a connection that is lost before the first batch could not be resumed.
		var cursor weir.Cursor
		if err := s.c.once(ctx, s.c.transport, &request{method: "GET", path: streamPath(s.id) + "/cursor"}, &cursor); err != nil {
			return false, err
		}
		s.from = After(cursor.Cursor)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(s.o.Silence, func() { cancel(errSilent) })
	defer watch.Stop()
	defer func() {
		if err != nil && context.Cause(ctx) == errSilent {
			err = errSilent
		}
	}()
	resp, err := s.c.open(ctx, s.c.transport, s.request())
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if err := isEvents(resp); err != nil {
		return false, err
	}
	opened := time.Now()
	defer func() {
		if time.Since(opened) > maxReconnect {
			*failures = 0 // it held, though nothing was published
		}
	}()
	d := newDecoder(&watched{resp.Body, watch, s.o.Silence})
	for {
		e, err := d.next()
		if d.retry > 0 {
			s.retry = d.retry
		}
		if err == io.EOF {
			return false, errors.New("the service ended the connection")
		}
		if err != nil {
			return false, err
		}
		*failures = 0
		batch, end, err := s.read(e)
		if err != nil || end {
			return end, err
		}
		if batch == nil {
			continue
		}
		if !yield(*batch, nil) {
			return true, nil
		}
	}
}

func (s *Subscriber) request() *request {
	r := &request{method: "GET", path: streamPath(s.id), accept: "text/event-stream"}
	if s.from.start == oldest {
		r.path += "?cursor=0"
	} else {
		r.last = s.from.seq.String()
	}
	return r
}

func isEvents(resp *http.Response) error {
	media, _, _ := strings.Cut(resp.Header.Get("content-type"), ";")
	if strings.TrimSpace(media) != "text/event-stream" {
		return strange{fmt.Errorf("the answer is not a subscription but %q", media)}
	}
	return nil
}

// read makes a batch of an event. It is nil for events that this client does not know, and for what it has seen.
func (s *Subscriber) read(e event) (batch *Batch, end bool, err error) {
	switch e.name {
	case "end":
		return nil, true, nil
	case "gap":
		var gap Gap
		if err := json.Unmarshal(e.data, &gap); err != nil || gap.To < gap.From {
			return nil, false, strange{fmt.Errorf("a gap that cannot be read: %.100q", e.data)}
		}
		if s.seen(gap.To) {
			return nil, false, nil
		}
		s.from = After(gap.To)
		return &Batch{Gap: &gap}, false, nil
	case "batch":
		b, err := parseBatch(e.data)
		if err != nil || s.seen(b.Seq) {
			return nil, false, err
		}
		s.from = After(b.Seq)
		return &b, false, nil
	}
	return nil, false, nil
}

func (s *Subscriber) seen(seq weir.Seq) bool { return s.from.start == after && seq <= s.from.seq }

// watched lets a watch run while somebody waits for what it reads.
type watched struct {
	r     io.Reader
	watch *time.Timer
	limit time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	w.watch.Reset(w.limit)
	n, err := w.r.Read(p)
	w.watch.Stop()
	return n, err
}
