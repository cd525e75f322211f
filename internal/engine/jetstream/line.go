package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

// line subscribes to one JetStream stream. It passes the messages in order to the function take,
// and records how far it has come. It creates its own push consumer, because the consumers of
// nats.go take up to half a minute to notice that a server died, and up to another half minute to
// try another server.
type line struct {
	e      *Engine
	stream string
	// fence is the subject of the stream's fences. A fence is an empty message that a node stores
	// only to learn the current end of the stream.
	fence   string
	headers bool // deliver messages without payloads
	// take receives every message except fences, one at a time and in order.
	take   func(m Stored)
	ctx    context.Context // ends when the line ends
	cancel context.CancelFunc
	work   sync.WaitGroup
	live   atomic.Bool // a consumer exists

	// reread is called before the line reads the whole stream again from its start. The line calls
	// the returned function when it has read everything. Only the line of the documents sets this
	// field. It reads everything again if it received nothing for longer than maxSilence, because
	// the servers may have removed the markers of deletions in the meantime. Then the only sign of
	// a deletion is that the document is missing.
	reread func() (end func())

	mu      sync.Mutex
	stop    context.CancelFunc // stops listening; nil before the method listen was called
	stopped chan struct{}      // closed when listening has stopped
	// heard is when a server last sent anything. It is wall clock time, which continues while a
	// machine sleeps.
	heard   time.Time
	stale   bool          // the line received nothing for too long, and has not finished reading everything again
	over    bool          // the line has ended
	seen    uint64        // all messages up to this sequence were passed to the function take
	known   uint64        // highest sequence of a fence that this node stored
	changed chan struct{} // closed when the field seen rises; nil while no goroutine waits

	proven time.Time // all messages that were acknowledged before this time were passed to the function take

	marks, catches coalescer
}

// coalescer merges calls that ask the servers the same question. While one call is running, all
// further callers share the next call. They cannot share the running call: a later caller must see
// every write that was acknowledged before its own call, and the fence of the running call may have
// been stored before such a write.
type coalescer struct{ running, next *sharedCall }

// sharedCall is one call of a coalescer and its result, which any number of callers share.
type sharedCall struct {
	done chan struct{}
	at   uint64
	err  error
}

const (
	// beat is the interval at which an idle consumer sends a heartbeat. If two heartbeats in a row
	// do not arrive, the line creates another consumer.
	beat = 500 * time.Millisecond
	// fenceLife is the TTL of a fence. A fence may expire before a line delivers it. This does no
	// harm, because the next message or heartbeat also shows that the line has passed the position
	// of the fence.
	fenceLife = "3s"
)

// begin prepares the line. The first message that the line will deliver is the one after the
// sequence lastSeen.
func (l *line) begin(e *Engine, lastSeen uint64) {
	l.e, l.seen, l.heard = e, lastSeen, time.Now().Round(0)
	l.ctx, l.cancel = context.WithCancel(e.ctx)
}

// listen starts a goroutine that passes messages to the function take until l.stop is called or the
// line ends. The goroutine first waits until the goroutine of an earlier listen has stopped, so
// that take never runs twice at once. The caller holds l.mu.
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
				l.e.opts.Logger.Debug("consumer failed", "stream", l.stream, "error", err)
				l.e.pause(ctx, retry/4)
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

// follow creates a consumer and takes the messages it delivers. It returns when the consumer fails
// or a message is missing. The caller then calls follow again, which starts after the last message
// that was taken.
//
// While the line reads everything again (the variable end is not nil), it does not advance l.seen,
// because callers that wait for a sequence must not see only half of the documents. The reading is
// complete when the consumer has delivered as many messages as were pending when it was created. It
// is also complete when the consumer is idle, because some of the pending messages may have been
// deleted before they were sent.
func (l *line) follow(ctx context.Context) error {
	from, end := l.startingPoint()
	c, err := l.nearest(ctx, from)
	if err != nil {
		return err
	}
	defer c.Close()
	l.live.Store(true)
	defer l.live.Store(false)
	defer context.AfterFunc(ctx, c.Close)() // when ctx ends, Next returns at once
	pending := c.Pending
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
		m, err := c.Next(5 * beat / 2)
		if err != nil {
			return err
		}
		if m.Seq == 0 {
			at, idle, err := control(m, delivered)
			if err != nil {
				return err
			}
			if reached = max(reached, at); idle {
				// The consumer is idle, so the missing messages were deleted before they were sent.
				pending = min(pending, delivered)
			}
			continue
		}
		if delivered++; m.Count != delivered {
			return errSkipped
		}
		if m.Subject != l.fence {
			l.take(m.Stored)
		}
		reached = max(reached, m.Seq)
	}
}

var errSkipped = errors.New("consumer skipped messages")

// startingPoint returns the sequence to start from. If everything must be read again, it also
// returns a function that must be called when everything was read.
func (l *line) startingPoint() (from uint64, end func()) {
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

// certain reports whether the line is certain to have missed no deletion.
func (l *line) certain() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.stale && time.Since(l.heard) <= maxSilence
}

// nearTries is how often the line tries to get a consumer on the server that this node is connected
// to. NATS places a consumer on a random replica of the stream. If that replica is on another
// server, each message crosses the network once more, although the connected server has it too.
const nearTries = 8

// nearest creates a consumer, if possible on the server that this node is connected to.
func (l *line) nearest(ctx context.Context, from uint64) (*Feed, error) {
	for try := 1; ; try++ {
		within, cancel := context.WithTimeout(ctx, l.e.apart(attempt))
		c, err := l.e.servers.Follow(within, l.stream, from, l.headers)
		cancel()
		if err != nil || c.Near || try == nearTries {
			return c, err
		}
		c.Close()
	}
}

// control handles a sign of life of the consumer. The result at is a sequence: all messages up to it
// were delivered or have been deleted. If the result idle is true, there is nothing more to deliver.
func control(m Delivery, delivered uint64) (at uint64, idle bool, err error) {
	switch {
	case m.Count > delivered:
		return 0, false, errSkipped
	case !m.Beat || m.Count < delivered: // a heartbeat that counts fewer messages than this line has received is outdated
		return 0, false, nil
	}
	return m.Passed, !m.Stalled, nil
}

// reached records that the line has taken all messages up to a sequence. A server has just sent a
// message or heartbeat that shows this.
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

// reach waits until the line has taken all messages up to a sequence.
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

// catchUp returns when the line has taken every message that was acknowledged to any client before
// the call. It cannot ask a server for the last message: a server that was replaced as leader may
// not know the newest messages. So catchUp stores a fence and waits until the line reaches it.
// In the stream, the fence comes after every message that was acknowledged earlier.
func (l *line) catchUp(ctx context.Context) error {
	_, err := l.coalesce(ctx, &l.catches, l.fenceAndReach)
	return err
}

// fenceAndReach stores a fence and waits until the line reaches it.
func (l *line) fenceAndReach(ctx context.Context) (uint64, error) {
	begun := time.Now()
	at, err := l.storeFence(ctx)
	if err == nil {
		err = l.reach(ctx, at)
	}
	if err == nil {
		l.mu.Lock()
		l.proven = begun
		l.mu.Unlock()
	}
	return at, err
}

// mark returns a sequence of the stream. Every message that was acknowledged to any client before
// the call has this sequence or a lower one.
func (l *line) mark(ctx context.Context) (uint64, error) {
	return l.coalesce(ctx, &l.marks, l.storeFence)
}

// coalesce calls the function put and returns its result. If a call of put for this coalescer is
// already running, coalesce waits for the next call, which all waiting callers share.
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
	late := time.NewTimer(l.e.patience()) // the shared call may first have to wait for the running call
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
	return fmt.Errorf("%w: no reply about the position of %s within %v", engine.ErrUnavailable, l.stream, l.e.opts.Patience)
}

// runCalls executes the running call and then the next one, until no caller is waiting.
func (l *line) runCalls(c *coalescer, put func(context.Context) (uint64, error)) {
	for q := c.running; q != nil; {
		ctx, cancel := context.WithTimeout(l.ctx, l.e.patience())
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

// storeFence stores a fence and returns its sequence. If there is no space for a fence, it uses
// markWithoutFence.
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

// markWithoutFence does the work of a fence when the servers have no space for one. It purges the
// subject of the fences. A purge needs no space, and this one removes only empty messages. A
// majority of the replicas must agree on a purge. So the leader that answers afterwards is the
// current one, and its last sequence covers everything that was acknowledged before.
func (l *line) markWithoutFence(ctx context.Context) (uint64, error) {
	if err := l.e.purge(ctx, l.stream, l.fence, 1); err != nil {
		return 0, err
	}
	return withRetry(ctx, l.e, func(ctx context.Context) (uint64, error) {
		s, err := l.e.servers.Stream(ctx, l.stream)
		if err != nil {
			return 0, err
		}
		return s.State.LastSeq, nil
	})
}

// last returns the newest message of a subject, or a message with the sequence 0 if there is none.
// It considers every message that was acknowledged before the call. It cannot just ask the leader,
// because a server that was replaced as leader may still believe that it leads. Instead it stores a
// fence, on which a majority of the replicas must agree, and then asks any replica. The answer
// counts only if that replica has already reached the fence.
func (l *line) last(ctx context.Context, subject string) (Stored, error) {
	for deadline := time.Now().Add(l.e.opts.Patience); ; {
		mark, err := l.mark(ctx)
		if err != nil {
			return Stored{}, err
		}
		for again := time.Now().Add(readWithin); time.Now().Before(again); {
			m, upTo, err := l.e.newest(ctx, l.stream, subject, l.fence)
			if err == nil && upTo >= mark {
				return m, nil
			}
			if err := l.e.pause(ctx, retry/16); err != nil {
				return Stored{}, err
			}
		}
		if l.e.Status().State == engine.Full {
			// There was no space for a fence, so the replica does not report its position. The
			// answer of the leader is the best one available.
			m, err := l.e.askLeader(ctx, l.stream, Query{LastFor: subject})
			if errors.Is(err, engine.ErrNotFound) {
				return Stored{}, nil
			}
			return m, err
		}
		if time.Now().After(deadline) {
			return Stored{}, fmt.Errorf("%w: no up-to-date replica of %s answered within %v", engine.ErrUnavailable, l.stream, l.e.opts.Patience)
		}
	}
}
