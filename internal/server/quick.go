package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// quick answers the simplest cleartext HTTP/1.1 requests without net/http: a POST whose head
// arrived in one piece, has nothing unusual in it, and declares the length of its body. Publishes
// look like this. For each request, net/http uses two goroutines, a context and a copy of the
// header, and wakes one goroutine only to stop it, which costs more than the publish itself.
//
// The quick path must be indistinguishable from net/http, so it does little by itself.
// http.ReadRequest parses the requests, and the same handler answers them. A request that is
// unusual in any way (see plain) goes to net/http unchanged, with everything that follows on its
// connection. When in doubt, a request goes to net/http: that is slower, never wrong.
// TestQuickMatchesNetHTTP and FuzzQuick compare the two.
//
// Handlers notice two differences. The response is sent when the handler returns, so a handler
// cannot stream. And the context of the request never ends: the server notices a disconnected
// client only when it sends the response, not while the handler waits for the disk.
//
// A connection belongs to one goroutine (converse) until it is closed or handed over.
type quick struct {
	handler   http.Handler
	oversized http.Handler
	logger    *slog.Logger

	rest     chan accepted // connections for net/http
	closed   chan struct{} // closed when net/http closes its listener
	stopping atomic.Bool   // set by stop: connections end after their current response
	work     sync.WaitGroup

	mu    sync.Mutex
	conns map[*quickConn]struct{}
}

// accepted is the result of an Accept by net/http.
type accepted struct {
	conn net.Conn
	err  error
}

func newQuick(h, oversized http.Handler, l *slog.Logger) *quick {
	return &quick{
		handler: h, oversized: oversized, logger: l, rest: make(chan accepted), closed: make(chan struct{}), conns: make(map[*quickConn]struct{}),
	}
}

// front accepts connections from l. It returns a listener for net/http with the connections that
// quick hands over, and with the errors of l.
func (q *quick) front(l net.Listener) net.Listener {
	q.work.Go(func() {
		for {
			c, err := l.Accept()
			if err == nil {
				q.add(c)
				continue
			}
			select {
			case q.rest <- accepted{err: err}: // net/http knows which errors to retry, and when
			case <-q.closed:
				return
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
		}
	})
	return &handover{Listener: l, q: q}
}

// handover is the listener that net/http serves.
type handover struct {
	net.Listener
	q    *quick
	once sync.Once
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case a := <-h.q.rest:
		return a.conn, a.err
	case <-h.q.closed:
		return nil, net.ErrClosed
	}
}

func (h *handover) Close() error {
	h.once.Do(func() { close(h.q.closed) })
	return h.Listener.Close()
}

// The states of a connection. stop closes a connection that is waiting, while its own goroutine may
// be about to answer a request that has just arrived. Both change the state with compare-and-swap,
// so that only one of them wins: a request is either answered completely or not started at all.
const (
	waiting   = iota // for a request
	answering        // a handler runs, or its response is being sent
	finished         // closed, or handed over
)

// quickConn is a connection on which all requests so far took the quick path. Only state and cut
// are used by more than one goroutine.
type quickConn struct {
	net.Conn
	place  *place
	in     *bufio.Reader
	remote string
	state  atomic.Int32

	// The read deadline is set lazily, by the next Read from the network: wanted is the deadline it
	// should have, set the one it has. A body that arrived together with its head is read from the
	// buffer, and needs no deadline and no system call.
	wanted, set time.Time

	cut atomic.Bool // nothing more may be read

	writeUntil time.Time // current write deadline
	now        time.Time // time of the last response

	out    []byte // buffer for the response, reused
	answer answer
	last   *remembered // nil before the first request
}

// quickBuffer is the size of the read buffer. A request whose head does not fit goes to net/http.
const quickBuffer = 4 << 10

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, quickBuffer) }}

// add starts a goroutine for a new connection.
func (q *quick) add(conn net.Conn) {
	c := &quickConn{Conn: conn, place: placeIn(conn)}
	c.in = readers.Get().(*bufio.Reader)
	c.in.Reset(c)
	q.mu.Lock()
	q.conns[c] = struct{}{}
	q.mu.Unlock()
	if q.stopping.Load() && c.state.CompareAndSwap(waiting, finished) {
		c.Close() // stop has run, and did not see this connection
	}
	q.work.Go(func() { q.converse(c) })
}

// Read reads from the network, after it has set the deadline that is wanted.
func (c *quickConn) Read(p []byte) (int, error) {
	if c.wanted != c.set {
		if err := c.SetReadDeadline(c.wanted); err != nil {
			return 0, err
		}
		c.set = c.wanted
	}
	if c.cut.Load() { // after the deadline was set: see cutOff
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Read(p)
}

// cutOff ends reading, also a read that is waiting. The order matters: if a Read replaces the
// deadline that cutOff sets, it is sure to see that the connection is cut.
func (c *quickConn) cutOff() error {
	c.cut.Store(true)
	return c.Conn.SetReadDeadline(started)
}

// within limits the next read to a duration of about d. It keeps the current deadline if that is at
// most d/8 early, because setting a deadline costs as much as parsing a request.
func (c *quickConn) within(now time.Time, d time.Duration) {
	if left := c.set.Sub(now); left < d-d/8 || left > d {
		c.wanted = now.Add(d)
	} else {
		c.wanted = c.set
	}
}

// converse answers requests until the connection ends, or until a request must go to net/http.
func (q *quick) converse(c *quickConn) {
	defer q.forget(c)
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				q.logger.Error("panic", "panic", p, "stack", string(debug.Stack()))
			}
			c.Close()
		}
	}()
	patience := readHeaderTimeout
	c.now = time.Now()
	for before := 0; ; before++ {
		c.within(c.now, patience)
		least := 1
		if before > 0 {
			least = 4 // net/http, too, waits for 4 bytes after a response
		}
		if _, err := c.in.Peek(least); err != nil {
			c.Close()
			return
		}
		raw, _ := c.in.Peek(c.in.Buffered())
		r := c.request(raw)
		if r == nil {
			if raw = bytes.Clone(raw); before > 0 {
				raw = afterBody(raw)
			}
			q.handOver(c, raw)
			return
		}
		if !c.state.CompareAndSwap(waiting, answering) || !c.place.begin() {
			c.Close()
			return
		}
		if !q.serve(c, r) {
			c.Close()
			return
		}
		c.state.Store(waiting)
		c.place.rest(c.now)
		patience = idleTimeout
		if q.stopping.Load() {
			c.Close()
			return
		}
	}
}

// forget removes a connection that is closed or handed over, and returns its buffer to the pool.
func (q *quick) forget(c *quickConn) {
	q.mu.Lock()
	delete(q.conns, c)
	q.mu.Unlock()
	c.in.Reset(nil)
	readers.Put(c.in)
}

// afterBody adjusts what was read after the body of an earlier request, so that net/http treats it
// as it would on a connection that it served from the start. Some old clients send a line break
// after a body, which net/http skips there. HTTP/2 can begin only at the start of a connection. To
// net/http a handed-over connection is a new one, so a line break before PRI keeps it from starting
// HTTP/2.
func afterBody(raw []byte) []byte {
	few := raw[:min(4, len(raw))]
	raw = raw[len(few)-len(bytes.TrimLeft(few, "\r\n")):]
	if bytes.HasPrefix(raw, []byte("PRI")) {
		return append([]byte("\r\n"), raw...)
	}
	return raw
}

// handOver gives a connection to net/http. raw is the data that was already read and not answered.
func (q *quick) handOver(c *quickConn, raw []byte) {
	if !c.state.CompareAndSwap(waiting, finished) || !c.place.begin() || c.SetDeadline(time.Time{}) != nil {
		c.Close()
		return
	}
	select {
	case q.rest <- accepted{conn: newReplayed(c.Conn, raw, q.oversized)}:
	case <-q.closed:
		c.Close()
	}
}

// serve answers one request and reports whether the connection can be used for another one.
func (q *quick) serve(c *quickConn, r *http.Request) (again bool) {
	if c.remote == "" {
		c.remote = c.RemoteAddr().String()
		c.answer = answer{c: c, header: make(http.Header)}
	}
	body := &quickBody{c: c, left: r.ContentLength}
	defer body.Close()
	r.Body, r.RemoteAddr = body, c.remote
	a := &c.answer
	a.begin()
	if int64(c.in.Buffered()) < r.ContentLength {
		c.within(time.Now(), idleTimeout) // in case the handler sets no deadline for the body
	}
	q.handler.ServeHTTP(a, r)
	whole := body.skip()
	last := !whole || r.Close || a.close || q.stopping.Load()
	if err := a.send(last); err != nil {
		return false
	}
	if !whole {
		c.linger()
	}
	return !last
}

// linger gives a client that is still sending time to read its response. If the server closed the
// connection at once, the unread data would cause a TCP reset, and the client might lose the
// response.
func (c *quickConn) linger() {
	end := time.Now().Add(lingerTime)
	if closeWrite(c.Conn) != nil || c.SetReadDeadline(end) != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c.Conn, skipBytes); err == nil {
		time.Sleep(time.Until(end))
	}
}

// lingerTime is the same as in net/http.
const lingerTime = 500 * time.Millisecond

// quickBody is a request body of declared length.
type quickBody struct {
	c      *quickConn
	left   int64       // bytes not read
	broken bool        // reading failed
	closed atomic.Bool // the handler has returned
}

func (b *quickBody) Read(p []byte) (int, error) {
	if b.closed.Load() { // a handler kept the body; the connection may be reading the next request
		return 0, http.ErrBodyReadAfterClose
	}
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.c.in.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	case err == nil && b.left == 0:
		err = io.EOF
	}
	b.broken = err != nil && err != io.EOF
	return n, err
}

func (b *quickBody) Close() error {
	b.closed.Store(true)
	return nil
}

// skip discards the rest of the body, if that is at most skipBytes, and reports whether the body
// was read completely. Like net/http it does so before the response is sent, because many clients
// read the response only after they have sent the whole body.
func (b *quickBody) skip() bool {
	if b.left > 0 && !b.broken && b.left <= skipBytes {
		b.c.wanted = time.Now().Add(skipTime)
		n, _ := b.c.in.Discard(int(b.left))
		b.left -= int64(n)
	}
	return b.left == 0
}

// stop closes connections that wait for a request. Connections with a request in flight end after
// their response.
func (q *quick) stop() {
	q.stopping.Store(true)
	q.mu.Lock()
	for c := range q.conns {
		if c.state.CompareAndSwap(waiting, finished) {
			c.Close()
		}
	}
	q.mu.Unlock()
}

// wait waits for requests in flight until the context ends; then it closes their connections and
// returns the error of the context. It does not wait for their handlers.
func (q *quick) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { q.work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.conns) == 0 {
		return nil
	}
	for c := range q.conns {
		c.Close()
	}
	return ctx.Err()
}
