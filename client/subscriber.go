package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"weir"
)

// From is where a subscription starts. The zero value is [Head].
type From struct {
	start start
	at    Position
}

type start uint8

const (
	head start = iota
	oldest
	after
)

var (
	Head   = From{}              // only batches above the cursor that the stream has at the first connection; all batches if nothing was ever stored before
	Oldest = From{start: oldest} // the oldest stored batch
)

// After starts with the first batch above a sequence number, which may lie in the future.
func After(seq weir.Seq) From { return From{after, Position{Seq: seq}} }

// Resume starts at a position that an earlier subscriber had reached. The subscriber reports a
// [Reset] if the stream has since been created again, or restored from an older backup.
func Resume(p Position) From {
	if p.Empty {
		return From{oldest, p}
	}
	return From{after, p}
}

// SubscriberOptions configure a [Subscriber]. The zero value starts at [Head].
type SubscriberOptions struct {
	From From

	// Until, if not nil, is the last sequence number to read. The iteration ends without an error
	// when all batches up to this number were yielded. To read only the batches that are already
	// stored, set Until to the cursor. A gap that begins at or below Until is yielded as a whole. After
	// a [Reset], Until counts in the new stream.
	Until *weir.Seq

	// Silence is the time after which the subscriber drops a connection without any data, not even
	// a heartbeat, and reconnects. 0 means 45 s: three heartbeats of a service with default
	// settings.
	Silence time.Duration

	// GiveUp is how long the subscriber tries to open its first connection: 0 means a minute, and a
	// negative value means forever. After this time the iteration ends with [ErrGivenUp] and the
	// reason, which is often a wrong address. After the first success, the subscriber reconnects
	// forever.
	GiveUp time.Duration

	// OnOpen is called when a connection is open. The goroutine that ranges over the batches calls
	// both OnOpen and OnRetry.
	OnOpen func()

	// OnRetry is called when the connection is lost or cannot be opened, with the reason and the
	// time until the next attempt.
	OnRetry func(err error, wait time.Duration)
}

// Subscriber follows a stream. Only Position and State may be called concurrently with other
// methods.
type Subscriber struct {
	c       *Client
	id      weir.StreamID
	o       SubscriberOptions
	retry   time.Duration // the delay before a reconnect, as sent by the service
	created weir.Time     // when the stream was created; 0 until the subscriber knows (D39)
	opened  bool          // at least one connection was opened
	bare    bool          // the last connection was opened to read only batch 0, and nothing was ever stored in the stream

	mu    sync.Mutex
	from  From // where to continue; advances with every yielded batch
	state State
	end   string // the reason in the end event; empty before it
}

// The reasons that [Subscriber.End] returns.
const (
	StreamDeleted = "stream_deleted"
	StreamExpired = "expired"
	StreamClosed  = "stream_closed"
)

// State says whether a subscriber is connected.
type State struct {
	Open  bool      // whether the subscriber is connected
	Since time.Time // time of the last change of Open; zero before the first connection
	Err   error     // why the last connection ended or could not be opened; nil if no connection has failed
}

const (
	defaultRetry  = time.Second // the delay before a reconnect if the service has sent none
	maxReconnect  = 30 * time.Second
	silentDefault = 45 * time.Second
	firstGiveUp   = time.Minute
)

// Subscriber returns a subscriber. It connects when the caller ranges over [Subscriber.Batches].
func (c *Client) Subscriber(id weir.StreamID, o SubscriberOptions) *Subscriber {
	if o.Silence <= 0 {
		o.Silence = silentDefault
	}
	if o.GiveUp == 0 {
		o.GiveUp = firstGiveUp
	}
	return &Subscriber{c: c, id: id, o: o, from: o.From, retry: defaultRetry, created: o.From.at.Created}
}

// Position returns the point at which the subscriber continues. It returns false while this point
// is not known: before the first connection of a subscriber that starts at [Head] or [Oldest]. A
// program that saves the position can continue there in its next run with [Resume].
func (s *Subscriber) Position() (Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from.at, s.from.start == after || s.from.at.Empty && s.from.at.Created != 0
}

// State returns whether the subscriber is connected, and the last error.
func (s *Subscriber) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// End returns why the service ended the subscription: [StreamDeleted], [StreamExpired],
// [StreamClosed], or a reason that only later versions of the service know. It returns "" while the
// service has not ended the subscription.
func (s *Subscriber) End() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

func (s *Subscriber) move(to From) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = to
}

func (s *Subscriber) turn(open bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open != s.state.Open {
		s.state.Open, s.state.Since = open, time.Now()
	}
	if err != nil {
		s.state.Err = err
	}
}

// Batches yields every batch from the starting point on, once and in order, and then waits for new
// batches. It reconnects and resumes when the connection is lost or the service restarts. For
// missed batches it yields a [Batch] with a Gap. If the stream was created again or restored from
// an older backup, it yields a [Batch] with a Reset. The iteration ends
//
//   - without an error when the stream is deleted or expires, or when it is closed and all its
//     batches were yielded; [Subscriber.End] says which,
//   - with the context's error when the context ends,
//   - with [ErrGivenUp] if the first connection cannot be opened in time,
//   - with a permanent error of the service, such as an unknown stream or a revoked key.
//
// A caller that leaves the loop and ranges again continues after the last yielded batch.
func (s *Subscriber) Batches(ctx context.Context) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		began := time.Now()
		for failures := 0; !s.arrived(); {
			limit := s.o.Silence
			if !s.opened && s.o.GiveUp > 0 {
				limit = min(limit, s.o.GiveUp-time.Since(began))
			}
			over, err := s.follow(ctx, limit, yield, &failures)
			s.turn(false, err)
			if over {
				return
			}
			if ctx.Err() != nil {
				yield(Batch{}, ctx.Err())
				return
			}
			if reset, ok := errors.AsType[*Reset](err); ok {
				s.created = reset.Created
				s.move(From{start: oldest})
				if !yield(Batch{Reset: reset}, nil) {
					return
				}
				continue
			}
			if !s.c.transient(err) {
				yield(Batch{}, err)
				return
			}
			failures++
			pause := s.pause(failures, err)
			if !s.opened && s.o.GiveUp > 0 && time.Since(began)+pause > s.o.GiveUp {
				yield(Batch{}, fmt.Errorf("%w after %v without a connection: %w", ErrGivenUp, s.o.GiveUp, err))
				return
			}
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
// and twice as long after each subsequent failure, up to a limit. A random time of at most half
// the delay is added, because the service sends the same delay to all clients.
func (s *Subscriber) pause(failures int, err error) time.Duration {
	d := retryAfter(err)
	if d == 0 {
		d = s.retry
		for range min(failures-1, 10) {
			d = min(2*d, max(maxReconnect, s.retry))
		}
	}
	return d + weir.Jitter(d/2)
}

var errSilent = errors.New("the connection was silent for too long: no data, not even a heartbeat")

// follow connects once and yields batches. It returns true when the iteration has ended, because
// the caller left the loop or the stream has ended. Otherwise the error says why the connection
// ended. The parameter limit is how long the service may take to answer.
func (s *Subscriber) follow(ctx context.Context, limit time.Duration, yield func(Batch, error) bool, failures *int) (over bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	line := new(progress)
	watch := time.AfterFunc(limit, func() {
		cancel(errSilent)
		if c := line.conn.Load(); c != nil && time.Since(time.Unix(0, c.at.Load())) >= s.o.Silence {
			c.Close() // otherwise the transport would send the next request over this connection
		}
	})
	defer watch.Stop()
	defer func() {
		if err != nil && context.Cause(ctx) == errSilent {
			err = errSilent
		}
	}()
	if err := s.checkPosition(ctx); err != nil {
		return false, err
	}
	resp, err := s.c.open(httptrace.WithClientTrace(ctx, line.trace(&httptrace.ClientTrace{})), s.c.transport(), s.request(), line)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if err := isEvents(resp); err != nil {
		return false, err
	}
	if err := s.incarnation(resp.Header); err != nil {
		return false, err
	}
	opened := time.Now()
	s.opened = true
	s.c.reached.Store(true)
	s.turn(true, nil)
	if s.o.OnOpen != nil {
		s.o.OnOpen()
	}
	defer func() {
		if time.Since(opened) > maxReconnect {
			*failures = 0 // the connection worked, even if nothing was published
		}
	}()
	d := newDecoder(&watched{resp.Body, watch, s.o.Silence})
	d.pause = s.o.Until != nil
	for {
		e, err := d.next()
		if d.retry > 0 {
			s.retry = d.retry
		}
		if failed := s.stand(ctx, d); failed != nil {
			return false, failed
		}
		if s.arrived() && err != nil {
			return true, nil
		}
		if err == errPaused {
			continue
		}
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
		if !yield(*batch, nil) || s.arrived() {
			return true, nil
		}
	}
}

// checkPosition is called before a reconnect. It returns a *Reset if the stream no longer reaches
// the position of the subscriber. After a restore from an older backup the stream may end before
// that position, and a subscription would wait, or skip batches without notice. A position that the
// stream never reached, such as a sequence in the future, is not checked.
func (s *Subscriber) checkPosition(ctx context.Context) error {
	at := s.from.at
	if at.Created == 0 || s.from.start != after {
		return nil
	}
	var cursor position
	header, err := s.c.once(ctx, s.c.transport(), &request{method: "GET", path: streamPath(s.id) + "/cursor"}, &cursor)
	if err != nil {
		return err
	}
	if err := s.incarnation(header); err != nil {
		return err
	}
	if cursor.Cursor < at.Seq {
		return &Reset{Lost: at, Created: s.created}
	}
	return nil
}

// incarnation returns a *Reset if the creation time of the stream in a response differs from the
// creation time that the subscriber knows (D39).
func (s *Subscriber) incarnation(h http.Header) error {
	var created weir.Time
	if created.UnmarshalText([]byte(h.Get(weir.HeaderStreamCreated))) != nil {
		return nil // the service does not send the creation time
	}
	if s.created != 0 && s.created != created {
		return &Reset{Lost: s.from.at, Created: created}
	}
	s.created = created
	return nil
}

// stand takes the position from the first frame of the connection, which comes before any event. If
// the connection is lost before the first batch, the subscriber resumes at this position. A first
// frame without a position means that nothing was ever stored in the stream, or that batch 0 comes
// next. In both cases, the subscriber continues with the oldest batch.
func (s *Subscriber) stand(ctx context.Context, d *decoder) error {
	if !d.idle || s.from.start == after {
		return nil
	}
	if seq, err := weir.ParseSeq(d.at); err == nil {
		s.move(From{after, Position{Seq: seq, Created: s.created}})
		return nil
	}
	s.move(From{oldest, Position{Created: s.created, Empty: true}})
	if s.o.Until == nil || *s.o.Until > 0 {
		return nil
	}
	_, err := s.c.Batch(ctx, s.id, 0)
	if s.bare = CodeOf(err) == weir.StreamNotFound; s.bare {
		return nil
	}
	return err
}

// arrived reports whether the subscriber has reached SubscriberOptions.Until. The cursor of a stream
// in which nothing was ever stored is 0, so a subscriber of such a stream has reached 0.
func (s *Subscriber) arrived() bool {
	return s.o.Until != nil && (s.bare || s.from.start == after && s.from.at.Seq >= *s.o.Until)
}

// passes reports whether a batch or a gap that begins at seq lies beyond SubscriberOptions.Until.
func (s *Subscriber) passes(seq weir.Seq) bool { return s.o.Until != nil && seq > *s.o.Until }

// reach moves the position of the subscriber past a batch or a gap.
func (s *Subscriber) reach(seq weir.Seq) { s.move(From{after, Position{Seq: seq, Created: s.created}}) }

func (s *Subscriber) request() *request {
	r := &request{method: "GET", path: streamPath(s.id), accept: "text/event-stream"}
	switch s.from.start {
	case head:
		r.path += "?cursor=head"
	case oldest:
		r.path += "?cursor=0"
	case after:
		r.last = s.from.at.Seq.String()
	}
	return r
}

func isEvents(resp *http.Response) error {
	media, _, _ := strings.Cut(resp.Header.Get("content-type"), ";")
	if strings.TrimSpace(media) != "text/event-stream" {
		return foreign("its content type is %q, not text/event-stream", media)
	}
	return nil
}

// read decodes an event. The returned batch is nil if this client does not know the kind of event,
// or has already yielded the batch.
func (s *Subscriber) read(e event) (batch *Batch, end bool, err error) {
	switch e.name {
	case "end":
		var end struct {
			Reason string `json:"reason"`
		}
		_ = json.Unmarshal(e.data, &end) // if the reason cannot be decoded, the subscription has ended all the same
		s.mu.Lock()
		s.end = end.Reason
		s.mu.Unlock()
		return nil, true, nil
	case "gap":
		var gap Gap
		if err := json.Unmarshal(e.data, &gap); err != nil || gap.To < gap.From {
			return nil, false, permanent{fmt.Errorf("decode a gap: invalid data %.100q", e.data)}
		}
		if s.seen(gap.To) || s.passes(gap.From) {
			return nil, s.passes(gap.From), nil
		}
		s.reach(gap.To)
		return &Batch{Gap: &gap}, false, nil
	case "batch":
		b, err := parseBatch(e.data)
		if err != nil {
			return nil, false, permanent{err}
		}
		if s.seen(b.Seq) || s.passes(b.Seq) {
			return nil, s.passes(b.Seq), nil
		}
		s.reach(b.Seq)
		return &b, false, nil
	}
	return nil, false, nil
}

func (s *Subscriber) seen(seq weir.Seq) bool { return s.from.start == after && seq <= s.from.at.Seq }

// watched is a reader that runs a timer during each Read. The timer does not run while the caller
// handles a batch, because that may take any time.
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
