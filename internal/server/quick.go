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

// quick answers the simplest cleartext HTTP/1.1 requests without net/http. Such a request is a POST
// with a body of known length. Its head arrived in one piece and has nothing unusual in it.
// Publishes usually look like this. Serving a request in this way is called the quick path. For
// each request, net/http uses two goroutines, a context and a copy of the header, and wakes one of
// the goroutines only to stop it. Together these cost more than the publish itself.
//
// A client must not be able to tell the quick path from net/http, so quick does little by itself.
// http.ReadRequest parses the requests, and the same handler answers them. A request that is
// unusual in any way (see plainHead) goes to net/http unchanged, and so does everything that
// follows on the same connection. When in doubt, a request goes to net/http: that is slower, but
// never wrong. TestQuickMatchesNetHTTP and FuzzQuick compare the responses of the quick path and of
// net/http.
//
// A handler can notice two differences. The response is sent when the handler returns, so a handler
// cannot stream. And the context of the request never ends: the server notices that a client has
// disconnected only when it sends the response, not while the handler waits for the disk.
//
// A connection belongs to one goroutine (converse) until it is closed or handed over.
type quick struct {
	handler   http.Handler
	oversized http.Handler
	logger    *slog.Logger

	rest     chan accepted // connections that are handed over to net/http, and errors of the listener
	closed   chan struct{} // closed when net/http closes its listener
	stopping atomic.Bool   // set by the method stop: connections end after their current response
	work     sync.WaitGroup

	mu    sync.Mutex
	conns map[*quickConn]struct{}
}

// accepted is the result of a call of Accept on the listener of net/http.
type accepted struct {
	conn net.Conn
	err  error
}

func newQuick(h, oversized http.Handler, l *slog.Logger) *quick {
	return &quick{
		handler: h, oversized: oversized, logger: l, rest: make(chan accepted), closed: make(chan struct{}), conns: make(map[*quickConn]struct{}),
	}
}

// front accepts connections from l. It returns a listener for net/http, whose Accept returns the
// connections that quick hands over and the errors of l.
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

// The states of a connection. The method stop closes a connection that waits for a request, while
// the goroutine of the connection may be about to answer a request that has just arrived. Both
// change the state with compare-and-swap, and only one of them succeeds. So a request is either
// answered completely or not handled at all.
const (
	waiting   = iota // the connection waits for a request
	answering        // a handler runs, or its response is being sent
	finished         // the connection is closed, or handed over to net/http
)

// quickConn is a connection on which all requests so far took the quick path. Only the fields state
// and cut are used by more than one goroutine.
type quickConn struct {
	net.Conn
	place  *place
	in     *bufio.Reader
	remote string
	state  atomic.Int32

	// The read deadline is set lazily, by the next Read from the network. The field wanted is the
	// deadline that the next Read should have. The field set is the deadline that the connection
	// has. A body that arrived together with its head is read from the buffer, so it needs no
	// deadline and no system call.
	wanted, set time.Time

	cut atomic.Bool // set by cutOff: every further Read fails

	writeUntil time.Time // current write deadline
	now        time.Time // when the last response was sent

	out    []byte // buffer for the response, reused
	answer answer
	last   *remembered // the previous request; nil before the first
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
		c.Close() // the method stop may have run before the connection was added, and missed it
	}
	q.work.Go(func() { q.converse(c) })
}

// Read reads from the network. Before that, it sets the deadline to c.wanted.
func (c *quickConn) Read(p []byte) (int, error) {
	if c.wanted != c.set {
		if err := c.SetReadDeadline(c.wanted); err != nil {
			return 0, err
		}
		c.set = c.wanted
	}
	if c.cut.Load() { // this check must come after the deadline was set, see cutOff
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Read(p)
}

// cutOff makes every Read fail, including one that is waiting. It sets the flag cut first, and the
// deadline second. So if a concurrent Read replaces this deadline with a later one, that Read sees
// the flag afterwards and does not wait.
func (c *quickConn) cutOff() error {
	c.cut.Store(true)
	return c.Conn.SetReadDeadline(started)
}

// limitRead limits the next read to a duration of about d. If the current deadline would end the
// read at most d/8 too early, limitRead keeps that deadline, because setting a deadline costs as
// much as parsing a request.
func (c *quickConn) limitRead(now time.Time, d time.Duration) {
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
		c.limitRead(c.now, patience)
		least := 1
		if before > 0 {
			least = 4 // after a response, net/http waits for 4 bytes too
		}
		if _, err := c.in.Peek(least); err != nil {
			c.Close()
			return
		}
		raw, _ := c.in.Peek(c.in.Buffered())
		r := c.nextRequest(raw)
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

// afterBody adjusts the data that follows the body of an earlier request, before the connection is
// handed over. To net/http, a connection that is handed over is a new connection. But net/http must
// treat this data like data that follows a request. There are two differences. Some old clients
// send a line break after a body; net/http skips it after a request, so afterBody removes it.
// HTTP/2, which starts with PRI, can begin only at the start of a connection; so afterBody puts a
// line break before PRI, which keeps net/http from starting HTTP/2.
func afterBody(raw []byte) []byte {
	few := raw[:min(4, len(raw))]
	raw = raw[len(few)-len(bytes.TrimLeft(few, "\r\n")):]
	if bytes.HasPrefix(raw, []byte("PRI")) {
		return append([]byte("\r\n"), raw...)
	}
	return raw
}

// handOver passes a connection to net/http. raw is the data that was read from the connection but
// belongs to no answered request.
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
		c.limitRead(time.Now(), idleTimeout) // applies if the handler sets no deadline for the body
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

// linger gives a client that is still sending a request body time to read its response. If the
// server closed the connection at once, the unread data would cause a TCP reset, and the response
// might not reach the client.
func (c *quickConn) linger() {
	end := time.Now().Add(lingerTime)
	if closeWrite(c.Conn) != nil || c.SetReadDeadline(end) != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c.Conn, skipBytes); err == nil {
		time.Sleep(time.Until(end))
	}
}

// lingerTime is how long linger waits. net/http waits for the same time.
const lingerTime = 500 * time.Millisecond

// quickBody is a request body of declared length.
type quickBody struct {
	c      *quickConn
	left   int64       // bytes of the body that were not read yet
	broken bool        // reading failed
	closed atomic.Bool // the handler has returned
}

func (b *quickBody) Read(p []byte) (int, error) {
	if b.closed.Load() { // the handler has returned; the connection may be reading the next request
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

// skip discards the rest of the body if at most skipBytes are left. It reports whether the body has
// been read completely. Like net/http, the quick path calls skip before it sends the response,
// because many clients read the response only after they have sent the whole body.
func (b *quickBody) skip() bool {
	if b.left > 0 && !b.broken && b.left <= skipBytes {
		b.c.wanted = time.Now().Add(skipTime)
		n, _ := b.c.in.Discard(int(b.left))
		b.left -= int64(n)
	}
	return b.left == 0
}

// stop closes the connections that wait for a request. The other connections are closed after the
// response to their current request.
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

// wait waits for requests in flight. If the context ends first, wait closes the connections of
// these requests and returns the error of the context. It then does not wait for their handlers.
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
