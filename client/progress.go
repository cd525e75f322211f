package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// moving is a connection that records when data last moved over it, in either direction. This
// distinguishes a slow connection from a dead one.
type moving struct {
	net.Conn
	at atomic.Int64 // when data last moved, in nanoseconds
}

// piece is the maximum number of bytes that moving writes at once. A slow write is split into
// pieces, so that each piece counts as movement.
const piece = 64 << 10

func newMoving(c net.Conn) *moving {
	m := &moving{Conn: c}
	m.at.Store(time.Now().UnixNano())
	return m
}

func (m *moving) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if n > 0 {
		m.at.Store(time.Now().UnixNano())
	}
	return n, err
}

func (m *moving) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var some int
		some, err = m.Conn.Write(b[n:min(n+piece, len(b))])
		if n += some; some > 0 {
			m.at.Store(time.Now().UnixNano())
		}
	}
	return n, err
}

// movingOf returns the moving connection below the layers of a transport, or nil.
func movingOf(c net.Conn) *moving {
	for {
		switch under := c.(type) {
		case *moving:
			return under
		case *gathered:
			c = under.Conn
		case *tls.Conn:
			c = under.NetConn()
		default:
			return nil
		}
	}
}

// stubborn is a multiple of the time limit of a request. If the request's own data has not moved
// for this multiple of the limit, the request is cancelled even if data of other requests still
// moves over its connection, because the request may be stuck in a proxy.
const stubborn = 4

// errStalled is the reason for cancelling a request that made no progress.
type errStalled struct{ limit time.Duration }

func (e errStalled) Error() string {
	return fmt.Sprintf("the request made no progress for %v", e.limit)
}

// progress watches one attempt of a request, and cancels the attempt if it makes no progress for
// the time in the field limit. The attempt makes progress when its own body or response moves. Any
// other movement on its connection counts too: on a slow link the attempt has to wait for the
// requests before it.
type progress struct {
	limit  time.Duration
	own    atomic.Int64 // when data of the attempt itself last moved, in nanoseconds
	conn   atomic.Pointer[moving]
	cancel context.CancelCauseFunc
	timer  *time.Timer // calls check; nil if the creator calls check
}

// watch returns a context for one attempt, and the progress of that attempt. The caller must call
// stop.
func watch(ctx context.Context, limit time.Duration) (context.Context, *progress) {
	ctx, p := unwatched(ctx, limit)
	p.timer = time.AfterFunc(limit, func() {
		if left := p.check(); left > 0 {
			p.timer.Reset(left)
		}
	})
	return ctx, p
}

// unwatched is like watch, but the caller has to call check. A publisher checks all its attempts
// with one timer, because a timer for each of thousands of attempts per second is expensive.
func unwatched(ctx context.Context, limit time.Duration) (context.Context, *progress) {
	p := &progress{limit: limit}
	ctx, p.cancel = context.WithCancelCause(ctx)
	p.moved()
	return ctx, p
}

// trace adds a hook to t that tells the progress which connection the transport uses.
func (p *progress) trace(t *httptrace.ClientTrace) *httptrace.ClientTrace {
	t.GotConn = func(i httptrace.GotConnInfo) {
		p.moved()
		p.conn.Store(movingOf(i.Conn))
	}
	return t
}

func (p *progress) moved() { p.own.Store(time.Now().UnixNano()) }

// check cancels the attempt if it made no progress for the time limit. Otherwise it returns the
// time until the next check.
func (p *progress) check() time.Duration {
	own := time.Unix(0, p.own.Load())
	last := own
	c := p.conn.Load()
	if c != nil {
		last = time.Unix(0, max(c.at.Load(), p.own.Load()))
	}
	quiet := time.Since(last)
	if quiet < p.limit && time.Since(own) < stubborn*p.limit {
		return p.limit - quiet
	}
	p.cancel(errStalled{p.limit})
	if c != nil && quiet >= p.limit {
		c.Close() // otherwise the transport would send the next request over this dead connection
	}
	return 0
}

func (p *progress) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.cancel(nil)
}

// explain returns why an attempt failed. For a cancelled attempt, it returns the reason for the
// cancellation.
func (p *progress) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && ctx.Err() != nil && !errors.Is(err, cause) {
		if _, ok := errors.AsType[*Error](err); !ok && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
			return cause
		}
	}
	return err
}

// movingReader is a reader that reports progress.
type movingReader struct {
	io.Reader
	p *progress
}

func (r *movingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if n > 0 {
		r.p.moved()
	}
	return n, err
}
