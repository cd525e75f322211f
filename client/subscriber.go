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

// From is where a subscription starts. The zero value is [Head].
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
	Head   = From{}              // new batches only: above the cursor at the time of the first connection; all if it had none
	Oldest = From{start: oldest} // the oldest stored batch
)

// After starts with the first batch above a sequence number, for example the last one seen in a
// previous run.
func After(seq weir.Seq) From { return From{after, seq} }

// SubscriberOptions configure a [Subscriber]. The zero value starts at [Head].
type SubscriberOptions struct {
	From From

	// Silence is the time without any data, not even a heartbeat, after which the subscriber drops
	// the connection and reconnects. 0 means 45 s: three heartbeats of a service with default
	// settings.
	Silence time.Duration

	// OnRetry is called when the connection is lost or cannot be opened, with the reason and the
	// time until the next attempt. It is called by the goroutine that ranges over the batches.
	OnRetry func(err error, wait time.Duration)
}

// Subscriber follows a stream. It must not be used concurrently.
type Subscriber struct {
	c     *Client
	id    weir.StreamID
	o     SubscriberOptions
	from  From          // advances with every batch that is yielded
	retry time.Duration // the service's delay before a reconnect
}

const (
	defaultRetry  = time.Second // delay before a reconnect, until the service sends one
	maxReconnect  = 30 * time.Second
	silentDefault = 45 * time.Second
)

// Subscriber returns a subscriber. It connects when the caller ranges over [Subscriber.Batches].
func (c *Client) Subscriber(id weir.StreamID, o SubscriberOptions) *Subscriber {
	if o.Silence <= 0 {
		o.Silence = silentDefault
	}
	return &Subscriber{c: c, id: id, o: o, from: o.From, retry: defaultRetry}
}

// Position returns the sequence after which the subscriber continues. It returns false while there
// is none: it starts at [Head] or [Oldest] and either has not connected yet, or nothing was ever
// stored. A program that saves the position can continue in its next run with [After].
func (s *Subscriber) Position() (weir.Seq, bool) { return s.from.seq, s.from.start == after }

// Batches yields every batch from the starting point on, once and in order, and then waits for new
// ones. It reconnects and resumes when the connection is lost or the service restarts. Missed
// batches are yielded as a [Batch] with a Gap. The iteration ends
//
//   - without an error when the stream is deleted,
//   - with the context's error when the context ends,
//   - with a permanent error of the service, such as an unknown stream or a revoked key.
//
// A caller that leaves the loop and ranges again continues after the last batch that was yielded.
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

// pause returns how long to wait before a reconnect: the service's delay after the first failure,
// and twice as long after each subsequent one, up to a limit. It adds up to half of that at random,
// because the service sends the same delay to all clients.
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

var errSilent = errors.New("the connection was silent for too long: no data, not even a heartbeat")

// follow connects once and yields batches. It returns true when the iteration has ended, because
// the caller left the loop or the stream was deleted. Otherwise the error says why the connection
// ended.
func (s *Subscriber) follow(ctx context.Context, yield func(Batch, error) bool, failures *int) (over bool, err error) {
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
			*failures = 0 // the connection worked, even if nothing was published
		}
	}()
	d := newDecoder(&watched{resp.Body, watch, s.o.Silence})
	for {
		e, err := d.next()
		if d.retry > 0 {
			s.retry = d.retry
		}
		s.stand(d)
		if err == io.EOF {
			return false, errors.New("the service closed the connection")
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

// stand takes the position from the first frame of the connection, so that a connection lost before
// the first batch is resumed there. A service without a position has never stored anything, so
// everything it stores from then on is above the head.
func (s *Subscriber) stand(d *decoder) {
	if !d.idle || s.from.start == after {
		return
	}
	if seq, err := weir.ParseSeq(d.at); err == nil {
		s.from = After(seq)
	} else {
		s.from = Oldest
	}
}

func (s *Subscriber) request() *request {
	r := &request{method: "GET", path: streamPath(s.id), accept: "text/event-stream"}
	switch s.from.start {
	case head:
		r.path += "?cursor=head"
	case oldest:
		r.path += "?cursor=0"
	case after:
		r.last = s.from.seq.String()
	}
	return r
}

func isEvents(resp *http.Response) error {
	media, _, _ := strings.Cut(resp.Header.Get("content-type"), ";")
	if strings.TrimSpace(media) != "text/event-stream" {
		return permanent{fmt.Errorf("the response is not from Weir: its content type is %q, not text/event-stream; check the service URL", media)}
	}
	return nil
}

// read decodes an event. The batch is nil for events that this client does not know, and for
// batches that it has already yielded.
func (s *Subscriber) read(e event) (batch *Batch, end bool, err error) {
	switch e.name {
	case "end":
		return nil, true, nil
	case "gap":
		var gap Gap
		if err := json.Unmarshal(e.data, &gap); err != nil || gap.To < gap.From {
			return nil, false, permanent{fmt.Errorf("decode a gap: invalid data %.100q", e.data)}
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

// watched is a reader that runs a timer during each Read. The timer does not run while the caller
// handles a batch, which may take any time.
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
