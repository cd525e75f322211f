package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

// line follows one JetStream stream in its order, and tells how far it has come. It has a consumer of its own: those of nats.go
// take up to half a minute to notice that a server died, and as long again to try another.
type line struct {
	e       *Engine
	stream  string
	fence   string // a subject of the stream that holds nothing
	headers bool   // without payloads
	take    func(m *nats.Msg, seq uint64)
	ctx     context.Context // ends with the line
	cancel  context.CancelFunc
	work    sync.WaitGroup
	live    atomic.Bool // there is a consumer

	// again, when it is set, begins to read everything once more, and returns what is to be called behind it: after so long
	// without a word, what was deleted is told by nothing but its absence.
	reread func() (end func())

	mu      sync.Mutex
	stop    context.CancelFunc // ends the following alone; nil when it never began
	stopped chan struct{}      // closed when that has ended
	heard   time.Time          // when a server last said something, by the wall clock, which goes on while a machine sleeps
	stale   bool               // for too long, and not everything was read again
	over    bool
	seen    uint64        // the newest message that was taken
	known   uint64        // the newest place that a fence of ours had
	changed chan struct{} // closed when seen rises; nil while nobody waits

	marks, catches coalescer
}

// chorus is a question that is put once for all who ask meanwhile. Whoever comes after it was put waits for the next one.
type coalescer struct{ running, next *sharedCall }

type sharedCall struct {
	done chan struct{}
	at   uint64
	err  error
}

const (
	// beat is how often a server tells that it has nothing to tell: when two of them do not come, it is asked anew.
	beat = 500 * time.Millisecond
	// fenceLife is how long a fence stays. Nobody needs it: where it was is passed by the next message or heartbeat.
	fenceLife = "3s"
)

// begin makes a line ready to listen from a place on.
func (l *line) begin(e *Engine, from uint64) {
	l.e, l.seen, l.heard = e, from, time.Now().Round(0)
	l.ctx, l.cancel = context.WithCancel(e.ctx)
}

// listen hands messages to take, in order, one at a time, until hush is called, or the line ends. With l.mu held.
func (l *line) listen() {
	ctx, stop := context.WithCancel(l.ctx)
	before, stopped := l.stopped, make(chan struct{})
	l.stop, l.stopped = stop, stopped
	l.work.Go(func() {
		defer close(stopped)
		if before != nil {
			<-before
		}
		for ctx.Err() == nil {
			err := l.follow(ctx)
			if ctx.Err() == nil {
				l.e.opts.Logger.Debug("follow anew", "stream", l.stream, "error", err)
				pause(ctx, retry/4)
			}
		}
	})
}

func (l *line) end() {
	if l.cancel == nil {
		return
	}
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.cancel()
	l.work.Wait()
}

// follow makes a consumer and takes what it brings, until something is missing.
func (l *line) follow(ctx context.Context) error {
	from, end := l.where()
	c, err := l.nearest(ctx, from)
	if err != nil {
		return err
	}
	defer l.leave(c)
	l.live.Store(true)
	defer l.live.Store(false)
	defer context.AfterFunc(ctx, func() { c.sub.Unsubscribe() })() // so that nobody waits for it any more
	pending := c.pending
	for delivered, reached := uint64(0), uint64(0); ; {
		if end != nil && delivered >= pending {
			end()
			end = nil
			l.mu.Lock()
			l.stale = false
			l.mu.Unlock()
		}
		if end == nil {
			l.reached(reached)
		}
		m, err := c.sub.NextMsg(5 * beat / 2)
		if err != nil {
			return err
		}
		if m.Header.Get("Status") != "" {
			at, idle, err := l.control(m, delivered)
			if err != nil {
				return err
			}
			if reached = max(reached, at); idle {
				pending = min(pending, delivered) // some of it was gone before it was sent
			}
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if delivered++; meta.Sequence.Consumer != delivered {
			return errors.New("messages are missing")
		}
		if m.Subject != l.fence {
			l.take(m, meta.Sequence.Stream)
		}
		reached = max(reached, meta.Sequence.Stream)
	}
}

// where is the place from which on messages are wanted, and what is to be called when all are read again.
func (l *line) where() (from uint64, end func()) {
	l.mu.Lock()
	if l.reread != nil && time.Since(l.heard) > maxSilence {
		l.stale = true
	}
	stale := l.stale
	from = l.seen + 1
	l.mu.Unlock()
	if !stale {
		return from, nil
	}
	return 1, l.reread()
}

// certain tells whether nothing can have been missed.
func (l *line) certain() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.stale && time.Since(l.heard) <= maxSilence
}

// consumer is what a server sends a stream with.
type consumer struct {
	sub     *nats.Subscription
	name    string
	pending uint64 // messages that there were when it was made
	near    bool   // it is on the server that we are connected to
}

// nearTries is how often a consumer is asked for that is near. Servers choose one of those that have the stream by lot, and what one
// sends that is not near crosses the network once more, though the server that we are connected to has it as well.
const nearTries = 8

// nearest makes a consumer, on the server that we are connected to if that can be had.
func (l *line) nearest(ctx context.Context, from uint64) (*consumer, error) {
	for try := 1; ; try++ {
		c, err := l.consumer(ctx, from)
		if err != nil || c.near || try == nearTries {
			return c, err
		}
		l.leave(c)
	}
}

// leave gives a consumer up. A server forgets it anyway when nobody listens any more: that it is told so is not waited for.
func (l *line) leave(c *consumer) {
	c.sub.Unsubscribe()
	l.e.nc.Publish("$JS.API.CONSUMER.DELETE."+l.stream+"."+c.name, nil)
}

// consumer asks for one that sends everything from a place on.
func (l *line) consumer(ctx context.Context, from uint64) (made *consumer, err error) {
	inbox := l.e.nc.NewInbox()
	sub, err := l.e.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			sub.Unsubscribe()
		}
	}()
	sub.SetPendingLimits(-1, -1) // the server is told how much may be on its way
	ask, err := json.Marshal(map[string]any{"stream_name": l.stream, "config": map[string]any{
		"deliver_subject": inbox, "deliver_policy": "by_start_sequence", "opt_start_seq": from, "ack_policy": "none", "replay_policy": "instant",
		"headers_only": l.headers, "idle_heartbeat": beat, "flow_control": true, "mem_storage": true, "num_replicas": 1, "inactive_threshold": 10 * beat,
	}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	answer, err := l.e.nc.RequestWithContext(ctx, "$JS.API.CONSUMER.CREATE."+l.stream, ask)
	if err != nil {
		return nil, err
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Name    string              `json:"name"`
		Pending uint64              `json:"num_pending"`
		Cluster *struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return nil, err
	}
	if got.Error != nil {
		return nil, got.Error
	}
	near := got.Cluster == nil || got.Cluster.Leader == l.e.nc.ConnectedServerName()
	return &consumer{sub, got.Name, got.Pending, near}, nil
}

// beaten answers what a server says between messages: that it is there, or that it waits for us. Everything up to the place that it
// returns was sent, or is gone; idle: there is nothing more to send.
func (l *line) control(m *nats.Msg, delivered uint64) (at uint64, idle bool, err error) {
	if m.Header.Get("Status") != "100" {
		return 0, false, fmt.Errorf("the consumer is over: %s %s", m.Header.Get("Status"), m.Header.Get("Description"))
	}
	if m.Reply != "" {
		return 0, false, m.Respond(nil)
	}
	stalled := m.Header.Get("Nats-Consumer-Stalled")
	if stalled != "" {
		if err := l.e.nc.Publish(stalled, nil); err != nil {
			return 0, false, err
		}
	}
	last, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64)
	if err != nil {
		return 0, false, nil
	}
	if last > delivered {
		return 0, false, errors.New("messages are missing")
	}
	if at, err = strconv.ParseUint(m.Header.Get("Nats-Last-Stream"), 10, 64); err != nil || last < delivered {
		return 0, false, nil
	}
	return at, stalled == "", nil
}

// reached says how far it has come, which a server just told.
func (l *line) reached(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = time.Now().Round(0)
	if seq <= l.seen {
		return
	}
	l.seen = seq
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// reach waits until a message was taken.
func (l *line) reach(ctx context.Context, seq uint64) error {
	for {
		l.mu.Lock()
		if l.seen >= seq {
			l.mu.Unlock()
			return nil
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ctx.Done():
			return engine.ErrClosed
		}
	}
}

// catchUp returns when everything was taken that was acknowledged to anybody before the call. Nobody can be asked for that: a
// server that leads no more may not know it yet. So a message is stored, and waited for: all that was acknowledged is before it.
func (l *line) catchUp(ctx context.Context) error {
	_, err := l.coalesce(ctx, &l.catches, func(ctx context.Context) (uint64, error) {
		at, err := l.storeFence(ctx)
		if err == nil {
			err = l.reach(ctx, at)
		}
		return at, err
	})
	return err
}

// mark returns a place behind everything that was acknowledged to anybody before the call.
func (l *line) mark(ctx context.Context) (uint64, error) {
	return l.coalesce(ctx, &l.marks, l.storeFence)
}

// together puts a question, unless one can be shared.
func (l *line) coalesce(ctx context.Context, c *coalescer, put func(context.Context) (uint64, error)) (uint64, error) {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return 0, engine.ErrClosed
	}
	q := c.next
	if q == nil {
		q = &sharedCall{done: make(chan struct{})}
		if c.running == nil {
			c.running = q
			l.work.Go(func() { l.runCalls(c, put) })
		} else {
			c.next = q
		}
	}
	l.mu.Unlock()
	late := time.NewTimer(l.e.opts.Patience) // the question before may take all of its own
	defer late.Stop()
	select {
	case <-q.done:
		return q.at, q.err
	case <-late.C:
		return 0, l.noReply()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (l *line) noReply() error {
	return fmt.Errorf("%w: how far %s is was not heard within %v", engine.ErrUnavailable, l.stream, l.e.opts.Patience)
}

// ask puts questions until there is none.
func (l *line) runCalls(c *coalescer, put func(context.Context) (uint64, error)) {
	for q := c.running; q != nil; {
		ctx, cancel := context.WithTimeout(l.ctx, l.e.opts.Patience)
		q.at, q.err = put(ctx)
		cancel()
		switch {
		case l.ctx.Err() != nil:
			q.err = engine.ErrClosed
		case errors.Is(q.err, context.DeadlineExceeded):
			q.err = l.noReply()
		}
		l.mu.Lock()
		c.running, c.next = c.next, nil
		next := c.running
		l.mu.Unlock()
		close(q.done)
		q = next
	}
}

// store stores a fence and returns its place. Where there is no space for it, something is asked for that takes none and changes
// nothing, on which most replicas have to agree as well; and then how far the stream is.
func (l *line) storeFence(ctx context.Context) (uint64, error) {
	at, err := withRetry(ctx, l.e, func(ctx context.Context) (uint64, error) {
		m := &nats.Msg{Subject: l.fence, Header: nats.Header{jetstream.MsgTTLHeader: {fenceLife}}}
		return l.e.send(ctx, []*nats.Msg{m})
	})
	if errors.Is(err, engine.ErrFull) {
		at, err = l.markWithoutFence(ctx)
	}
	if err == nil {
		l.mu.Lock()
		l.known = max(l.known, at)
		l.mu.Unlock()
	}
	return at, err
}

// storeNothing is store without space for a fence.
func (l *line) markWithoutFence(ctx context.Context) (uint64, error) {
	if err := l.e.purge(ctx, l.stream, l.fence, 1); err != nil {
		return 0, err
	}
	return withRetry(ctx, l.e, func(ctx context.Context) (uint64, error) {
		s, err := l.e.js.Stream(ctx, l.stream)
		if err != nil {
			return 0, err
		}
		return s.CachedInfo().State.LastSeq, nil
	})
}
