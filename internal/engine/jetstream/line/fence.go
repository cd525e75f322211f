package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/wire"
)

// fenceLife is the TTL of a fence. A fence may expire before a line delivers it. This does no harm,
// because the next message or heartbeat also shows that the line has passed the position of the
// fence.
const fenceLife = "3s"

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

// CatchUp returns when the line has taken every message that was acknowledged to any client before
// the call. It cannot ask a server for the last message: a server that was replaced as leader may
// not know the newest messages. So CatchUp stores a fence and waits until the line reaches it.
// In the stream, the fence comes after every message that was acknowledged earlier.
func (l *Line) CatchUp(ctx context.Context) error {
	_, err := l.coalesce(ctx, &l.catches, l.fenceAndReach)
	return err
}

// fenceAndReach stores a fence and waits until the line reaches it.
func (l *Line) fenceAndReach(ctx context.Context) (uint64, error) {
	begun := time.Now()
	at, err := l.storeFence(ctx)
	if err == nil {
		err = l.Reach(ctx, at)
	}
	if err == nil {
		l.mu.Lock()
		l.proven = begun
		l.mu.Unlock()
	}
	return at, err
}

// Mark returns a sequence of the stream. Every message that was acknowledged to any client before
// the call has this sequence or a lower one.
func (l *Line) Mark(ctx context.Context) (uint64, error) {
	return l.coalesce(ctx, &l.marks, l.storeFence)
}

// coalesce calls the function put and returns its result. If a call of put for this coalescer is
// already running, coalesce waits for the next call, which all waiting callers share.
func (l *Line) coalesce(ctx context.Context, c *coalescer, put func(context.Context) (uint64, error)) (uint64, error) {
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
	late := time.NewTimer(l.client.Limit()) // the shared call may first have to wait for the running call
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

func (l *Line) noReply() error {
	return fmt.Errorf("%w: no reply about the position of %s within %v", engine.ErrUnavailable, l.Stream, l.client.Patience)
}

// runCalls executes the running call and then the next one, until no caller is waiting.
func (l *Line) runCalls(c *coalescer, put func(context.Context) (uint64, error)) {
	for q := c.running; q != nil; {
		ctx, cancel := context.WithTimeout(l.ctx, l.client.Limit())
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
func (l *Line) storeFence(ctx context.Context) (uint64, error) {
	at, err := wire.Ask(ctx, l.client, func(ctx context.Context) (uint64, error) {
		m := &nats.Msg{Subject: l.Fence, Header: nats.Header{jetstream.MsgTTLHeader: {fenceLife}}}
		return l.client.Send(ctx, []*nats.Msg{m})
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
func (l *Line) markWithoutFence(ctx context.Context) (uint64, error) {
	if err := l.client.Clear(ctx, l.Stream, l.Fence, 1); err != nil {
		return 0, err
	}
	return wire.Ask(ctx, l.client, func(ctx context.Context) (uint64, error) {
		s, err := l.client.Stream(ctx, l.Stream)
		if err != nil {
			return 0, err
		}
		return s.State.LastSeq, nil
	})
}

// Last returns the newest message of a subject, or a message with the sequence 0 if there is none.
// It considers every message that was acknowledged before the call. It cannot just ask the leader,
// because a server that was replaced as leader may still believe that it leads. Instead it stores a
// fence, on which a majority of the replicas must agree, and then asks any replica. The answer
// counts only if that replica has already reached the fence.
func (l *Line) Last(ctx context.Context, subject string) (wire.Stored, error) {
	for deadline := time.Now().Add(l.client.Patience); ; {
		mark, err := l.Mark(ctx)
		if err != nil {
			return wire.Stored{}, err
		}
		for again := time.Now().Add(wire.ReadWithin); time.Now().Before(again); {
			m, upTo, err := l.client.Newest(ctx, l.Stream, subject, l.Fence)
			if err == nil && upTo >= mark {
				return m, nil
			}
			if err := l.client.Pause(ctx, wire.Retry/16); err != nil {
				return wire.Stored{}, err
			}
		}
		if l.Full() {
			// There was no space for a fence, so the replica does not report its position. The
			// answer of the leader is the best one available.
			m, err := l.client.Leader(ctx, l.Stream, wire.Query{LastFor: subject})
			if errors.Is(err, engine.ErrNotFound) {
				return wire.Stored{}, nil
			}
			return m, err
		}
		if time.Now().After(deadline) {
			return wire.Stored{}, fmt.Errorf("%w: no up-to-date replica of %s answered within %v", engine.ErrUnavailable, l.Stream, l.client.Patience)
		}
	}
}

// Unproven returns how long ago the line was last proved to have taken every acknowledged message.
func (l *Line) Unproven() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.proven)
}
