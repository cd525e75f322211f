package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/server/loop"
)

// front accepts connections and gives them to the event loops, which answer plain requests without
// net/http. Over TLS, it does the handshake before that. A connection that a loop does not serve any
// more goes to net/http, with the data that the loop has read. Of an HTTP/2 connection, a loop may
// also give only some requests to net/http, through a tunnel.
type front struct {
	from      bounded
	loops     *loop.Loops
	secure    *tls.Config // nil if connections are not encrypted
	oversized http.Handler
	rest      chan accepted   // connections that net/http serves, and errors of the listener
	closed    context.Context // ends when net/http closes its listener
	close     context.CancelFunc
	uncut     context.Context // ends when the connections that speak serves must be closed
	cut       context.CancelFunc
	severed   atomic.Bool                       // one of these connections was closed
	http2     func(c net.Conn, hasPreface bool) // serves an HTTP/2 connection with net/http
	work      sync.WaitGroup
	shaking   sync.WaitGroup // handshakes
	logger    *slog.Logger
}

// accepted is the result of a call of Accept on the listener of net/http.
type accepted struct {
	conn net.Conn
	err  error
}

func newFront(t *tcp, from bounded, h, oversized http.Handler, secure *tls.Config) (*front, error) {
	f := &front{from: from, oversized: oversized, secure: secure, rest: make(chan accepted), http2: t.serveHTTP2, logger: t.logger}
	f.closed, f.close = context.WithCancel(context.Background())
	f.uncut, f.cut = context.WithCancel(context.Background())
	var err error
	f.loops, err = loop.New(loop.Options{
		Handler: h, Logger: t.logger, HandOver: f.handOver, Tunnel: f.tunnel, HTTP2: t.limits,
		Head: readHeaderTimeout, Answer: answerTime, Idle: idleTimeout,
	})
	return f, err
}

// start starts to accept connections for the loops.
func (f *front) start() { f.work.Go(f.accept) }

// listener returns the listener for net/http. Its method Accept returns the connections that the loops
// hand over, and the errors that occur while connections are accepted.
func (f *front) listener() net.Listener { return handover{f.from, f} }

func (f *front) accept() {
	for {
		c, err := f.from.Accept()
		if err == nil {
			f.add(c)
			continue
		}
		select {
		case f.rest <- accepted{err: err}: // net/http knows which errors to retry, and when
		case <-f.closed.Done():
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
	if f.secure != nil {
		f.shaking.Go(func() { f.shake(n) })
		return
	}
	f.loops.Add(n.TCPConn, seat{n.place}, nil)
}

// shake does the TLS handshake of a connection, and gives the connection to a loop if it speaks
// HTTP. Other connections go to net/http. So do those whose handshake failed: net/http gets the same
// error, logs it, and responds to clients that do not speak TLS.
func (f *front) shake(n *counted) {
	defer func() {
		if p := recover(); p != nil { // net/http survives a panic in a handshake too
			f.logger.Error("panic", "panic", p, "stack", string(debug.Stack()))
			n.Close()
		}
	}()
	s := loop.NewSession(n, f.secure)
	n.SetDeadline(time.Now().Add(readHeaderTimeout))
	err := s.HandshakeContext(f.closed)
	n.SetDeadline(time.Time{})
	if p := s.ConnectionState().NegotiatedProtocol; err != nil || p != "" && p != "http/1.1" && p != "h2" {
		f.pass(s.Conn)
		return
	}
	f.loops.Add(n.TCPConn, seat{n.place}, s)
}

// handOver receives a connection from a loop.
func (f *front) handOver(c net.Conn, of loop.Place, session *loop.Session, raw []byte) {
	n := &counted{TCPConn: c.(*net.TCPConn), place: of.(seat).place}
	n.place.hold(n)
	var to net.Conn = newReplayed(n, raw, f.oversized)
	if session != nil {
		session.Use(n)
		to = replayedTLS{&replayed{Conn: session, raw: raw}, session}
		if n.yields = session.ConnectionState().NegotiatedProtocol == "h2"; n.yields {
			f.speak(to, n)
			return
		}
	}
	go f.pass(to) // in a goroutine, because net/http may not be ready to accept a connection
}

// speak serves an HTTP/2 connection over TLS that a loop has handed over. An http.Server would take
// it for an HTTP/1.1 connection, because it is no *tls.Conn. The parameter below is the connection
// without encryption.
func (f *front) speak(c net.Conn, below *counted) {
	f.work.Go(func() {
		if f.closed.Err() != nil { // the server shuts down, and would not tell the client
			below.Close()
			return
		}
		defer context.AfterFunc(f.uncut, func() { f.severed.Store(true); below.Close() })()
		f.http2(c, false)
	})
}

// tunnel serves those requests of an HTTP/2 connection that a loop does not serve. When the loop
// closes the connection, the tunnel ends.
func (f *front) tunnel(c net.Conn) { f.work.Go(func() { f.http2(c, true) }) }

// pass gives a connection to net/http.
func (f *front) pass(c net.Conn) {
	select {
	case f.rest <- accepted{conn: c}:
	case <-f.closed.Done():
		c.Close()
	}
}

// wait waits until no request is in flight in the loops (see loop.Loops.Wait) and on the connections
// that speak serves. If the context ends first, it cuts them off and returns the error of the
// context. It also waits for handshakes. They end soon, because their connections are closed, unless
// a callback for the certificate blocks. So wait gives up on them when the context ends.
func (f *front) wait(ctx context.Context) error {
	err := f.loops.Wait(ctx)
	stop := context.AfterFunc(ctx, f.cut)
	f.work.Wait()
	stop()
	f.cut()
	if f.severed.Load() {
		err = ctx.Err()
	}
	done := make(chan struct{})
	go func() { f.shaking.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
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
	case <-h.f.closed.Done():
		return nil, net.ErrClosed
	}
}

func (h handover) Close() error {
	h.f.close()
	return h.Listener.Close()
}

// seat tells the limit of connections what an event loop does with a connection. It implements
// loop.Place.
type seat struct{ place *place }

// Enter stores what closes the connection from now on. While the connection was on its way to the
// loop, the server may have decided to close it, to make room for another one. It then asked the
// holder before, possibly without effect, so Enter asks the new one itself.
func (s seat) Enter(by loop.Holder) {
	s.place.hold(by)
	if s.place.isReplaced() {
		by.Evict()
	}
}

func (s seat) Begin() bool        { return s.place.begin() }
func (s seat) Rest(now time.Time) { s.place.rest(now) }
func (s seat) Leave()             { s.place.leave() }

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
