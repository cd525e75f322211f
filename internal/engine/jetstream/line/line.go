// Package line follows one JetStream stream in its order, learns with fences how far the stream has
// come, and reads the records of a log up to there. A fence is an empty message that a node stores
// only to learn a position that most replicas agree on.
package line

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/wire"
)

// Options say what a line follows, and who receives the messages.
type Options struct {
	Stream  string
	Fence   string // subject of the stream's fences
	Headers bool   // deliver messages without payloads
	// Take receives every message except fences, one at a time and in order.
	Take func(m wire.Stored)
	// Reread is called before the line reads the whole stream again from its start. The line calls the
	// returned function when it has read everything. The line reads everything again if it received
	// nothing for longer than Silence. In that time the servers may have removed the markers of
	// deletions, and then the only sign of a deletion is that the document is missing. If Reread is
	// nil, the line never reads everything again.
	Reread  func() (end func())
	Silence time.Duration
	Reads   byte // newest version of messages that this node reads
	// Full reports whether the servers have no space for a fence.
	Full   func() bool
	Logger *slog.Logger
}

// Line subscribes to one JetStream stream. It passes the messages in order to the function Take,
// and records how far it has come. It creates its own push consumer, because the consumers of
// nats.go take up to half a minute to notice that a server died, and up to another half minute to
// try another server.
type Line struct {
	Options
	client *wire.Client
	ctx    context.Context // ends when the line ends
	cancel context.CancelFunc
	work   sync.WaitGroup
	live   atomic.Bool // a consumer exists

	mu      sync.Mutex
	users   int                // number of calls of Join minus number of calls of Unjoin
	stop    context.CancelFunc // stops listening; nil before the method Listen was called
	stopped chan struct{}      // closed when listening has stopped
	// heard is when a server last sent anything. It is wall clock time, which continues while a
	// machine sleeps.
	heard   time.Time
	stale   bool          // the line received nothing for too long, and has not finished reading everything again
	over    bool          // the line has ended
	seen    uint64        // all messages up to this sequence were passed to the function Take
	known   uint64        // highest sequence of a fence that this node stored
	changed chan struct{} // closed when the field seen rises; nil while no goroutine waits

	proven time.Time // all messages that were acknowledged before this time were passed to the function Take

	marks, catches coalescer
}

// New returns a line that does not listen yet. The first message that it will deliver is the one
// after the sequence seen.
func New(c *wire.Client, seen uint64, o Options) *Line {
	l := &Line{Options: o, client: c, seen: seen, heard: time.Now().Round(0)}
	l.ctx, l.cancel = context.WithCancel(c.Life)
	return l
}

// Listen starts to pass messages to the function Take, until Stop is called or the line ends.
func (l *Line) Listen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listen()
}

// Stop makes the line stop listening. The returned channel is closed when it has stopped; it is nil
// if the line never listened.
func (l *Line) Stop() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		l.stop()
	}
	return l.stopped
}

// Join makes the line listen until Unjoin has been called as often as Join. The line may leave out
// messages that were stored before the call.
func (l *Line) Join(ctx context.Context) {
	l.mu.Lock()
	quiet := l.users == 0
	l.mu.Unlock()
	if quiet {
		// Mark sets l.known to the last sequence of the stream, and the line starts after it. If
		// Mark fails, the line starts earlier and delivers more messages than necessary.
		l.Mark(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users == 1 && !l.over {
		l.seen = max(l.seen, l.known)
		l.listen()
	}
}

// Unjoin undoes one Join. After the last one, the line does not listen.
func (l *Line) Unjoin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users == 0 && l.stop != nil {
		l.stop()
	}
}

// Joined reports whether Join was called more often than Unjoin.
func (l *Line) Joined() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users > 0
}

// Live reports whether messages are being delivered.
func (l *Line) Live() bool { return l.live.Load() }

// listen starts a goroutine that passes messages to the function Take until l.stop is called or the
// line ends. The goroutine first waits until the goroutine of an earlier listen has stopped, so
// that Take never runs twice at once. The caller holds l.mu.
func (l *Line) listen() {
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
				l.Logger.Debug("consumer failed", "stream", l.Stream, "error", err)
				l.client.Pause(ctx, wire.Retry/4)
			}
		}
	})
}

// End ends the line for good.
func (l *Line) End() {
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
func (l *Line) follow(ctx context.Context) error {
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
		m, err := c.Next(5 * wire.Beat / 2)
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
		if m.Subject != l.Fence {
			l.Take(m.Stored)
		}
		reached = max(reached, m.Seq)
	}
}

var errSkipped = errors.New("consumer skipped messages")

// startingPoint returns the sequence to start from. If everything must be read again, it also
// returns a function that must be called when everything was read.
func (l *Line) startingPoint() (from uint64, end func()) {
	l.mu.Lock()
	if l.Reread != nil && time.Since(l.heard) > l.Silence {
		l.stale = true
	}
	stale := l.stale
	from = l.seen + 1
	l.mu.Unlock()
	if !stale {
		return from, nil
	}
	return 1, l.Reread()
}

// Certain reports whether the line is certain to have missed no deletion.
func (l *Line) Certain() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.stale && time.Since(l.heard) <= l.Silence
}

// nearTries is how often the line tries to get a consumer on the server that this node is connected
// to. NATS places a consumer on a random replica of the stream. If that replica is on another
// server, each message crosses the network once more, although the connected server has it too.
const nearTries = 8

// nearest creates a consumer, if possible on the server that this node is connected to.
func (l *Line) nearest(ctx context.Context, from uint64) (*wire.Feed, error) {
	for try := 1; ; try++ {
		within, cancel := context.WithTimeout(ctx, l.client.Apart(wire.Timeout))
		c, err := l.client.Follow(within, l.Stream, from, l.Headers)
		cancel()
		if err != nil || c.Near || try == nearTries {
			return c, err
		}
		c.Close()
	}
}

// control handles a sign of life of the consumer. The result at is a sequence: all messages up to it
// were delivered or have been deleted. If the result idle is true, there is nothing more to deliver.
func control(m wire.Delivery, delivered uint64) (at uint64, idle bool, err error) {
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
func (l *Line) reached(seq uint64) {
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

// Reach waits until the line has taken all messages up to a sequence.
func (l *Line) Reach(ctx context.Context, seq uint64) error {
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
