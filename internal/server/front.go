package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"weir/internal/server/loop"
)

// front accepts cleartext connections and gives them to the event loops, which answer plain HTTP/1.1
// requests without net/http. A connection that a loop does not serve any more goes to net/http, with
// the data that the loop has read.
type front struct {
	from      bounded
	loops     *loop.Loops
	oversized http.Handler
	rest      chan accepted // connections that net/http serves, and errors of the listener
	closed    chan struct{} // closed when net/http closes its listener
	once      sync.Once
	work      sync.WaitGroup
}

// accepted is the result of a call of Accept on the listener of net/http.
type accepted struct {
	conn net.Conn
	err  error
}

func newFront(from bounded, h, oversized http.Handler, logger *slog.Logger) (*front, error) {
	f := &front{from: from, oversized: oversized, rest: make(chan accepted), closed: make(chan struct{})}
	var err error
	f.loops, err = loop.New(loop.Options{Handler: h, Logger: logger, HandOver: f.handOver, Head: readHeaderTimeout, Idle: idleTimeout})
	return f, err
}

// listener starts to accept connections for the loops. It returns the listener for net/http. The
// Accept method of that listener returns the connections that the loops hand over, and the errors
// that occur while connections are accepted.
func (f *front) listener() net.Listener {
	f.work.Go(f.accept)
	return handover{f.from, f}
}

func (f *front) accept() {
	for {
		c, err := f.from.Accept()
		if err == nil {
			f.add(c)
			continue
		}
		select {
		case f.rest <- accepted{err: err}: // net/http knows which errors to retry, and when
		case <-f.closed:
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// add gives a connection to a loop.
func (f *front) add(c net.Conn) {
	n := c.(*counted) // bounded.Accept returns no other type
	f.loops.Add(n.TCPConn, seat{n.connections, n.place})
}

// handOver receives a connection from a loop.
func (f *front) handOver(c net.Conn, of loop.Place, raw []byte) {
	s := of.(seat)
	n := &counted{TCPConn: c.(*net.TCPConn), connections: s.connections, place: s.place}
	if s.place != nil {
		end := func() { n.Close() }
		s.place.close.Store(&end)
	}
	// In a goroutine, because net/http may not be ready to accept a connection.
	go f.pass(newReplayed(n, raw, f.oversized))
}

// pass gives a connection to net/http.
func (f *front) pass(c net.Conn) {
	select {
	case f.rest <- accepted{conn: c}:
	case <-f.closed:
		c.Close()
	}
}

// wait waits until no request is in flight in the loops; see loop.Loops.Wait.
func (f *front) wait(ctx context.Context) error {
	err := f.loops.Wait(ctx)
	f.work.Wait()
	return err
}

// handover is the listener that net/http serves.
type handover struct {
	net.Listener
	f *front
}

func (h handover) Accept() (net.Conn, error) {
	select {
	case a := <-h.f.rest:
		return a.conn, a.err
	case <-h.f.closed:
		return nil, net.ErrClosed
	}
}

func (h handover) Close() error {
	h.f.once.Do(func() { close(h.f.closed) })
	return h.Listener.Close()
}

// seat tells the limit of connections what an event loop does with a connection. It implements
// loop.Place.
type seat struct {
	connections *connections
	place       *place
}

// Enter stores the function evict, which closes the connection. While the connection was on its way
// to the loop, the server may have decided to close it, to make room for another one. It then called
// the function that was stored before, possibly without effect, so Enter calls evict itself.
func (s seat) Enter(evict func()) {
	if s.place == nil {
		return
	}
	s.place.close.Store(&evict)
	if s.place.isReplaced() {
		evict()
	}
}

func (s seat) Begin() bool        { return s.place.begin() }
func (s seat) Rest(now time.Time) { s.place.rest(now) }
func (s seat) Leave()             { s.connections.give(s.place) }

// replaying is the cleartext listener that is used without event loops: net/http serves all its
// connections.
type replaying struct {
	net.Listener
	oversized http.Handler
}

func (l replaying) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &replayed{Conn: c, fresh: true, oversized: l.oversized}, nil
}
