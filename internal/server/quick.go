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
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// quick answers the plainest requests of cleartext HTTP/1.1 itself: a POST whose head came in one piece and has nothing
// unusual in it, with a body of declared length. net/http needs two goroutines, a context and a copy of the header for
// each, and wakes one goroutine only to tell it to stop: more than everything that a publish does. Requests are parsed by
// http.ReadRequest and given to the same handler. Whatever looks different in any way (see plain) goes to net/http as it
// came, with the rest of its connection.
//
// The answer is sent when the handler returns, so such a handler cannot stream. The request's context never ends: a
// client that went away is noticed when it is answered, and not while the disk is stuck.
type quick struct {
	handler http.Handler
	logger  *slog.Logger

	rest     chan accepted // connections for net/http
	closed   chan struct{}
	stopping atomic.Bool
	work     sync.WaitGroup

	mu    sync.Mutex
	conns map[*quickConn]struct{}
}

// accepted is what net/http gets when it accepts.
type accepted struct {
	conn net.Conn
	err  error
}

func newQuick(h http.Handler, l *slog.Logger) *quick {
	return &quick{
		handler: h, logger: l, rest: make(chan accepted), closed: make(chan struct{}), conns: make(map[*quickConn]struct{}),
	}
}

// front accepts from l and returns a listener with what is not answered here.
func (q *quick) front(l net.Listener) net.Listener {
	q.work.Go(func() {
		for {
			c, err := l.Accept()
			if err == nil {
				q.add(c)
				continue
			}
			select {
			case q.rest <- accepted{err: err}: // net/http knows which errors pass, and when to try again
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

// handover is the listener that net/http has.
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

// The states of a connection.
const (
	waiting = iota // for a request
	answering
	finished // closed, or handed over
)

// quickConn is a connection whose requests were all plain so far.
type quickConn struct {
	net.Conn
	in     *bufio.Reader
	remote string
	state  atomic.Int32

	wanted, set time.Time // read deadline: what it should be when something is read, and what it is
	writeUntil  time.Time // write deadline
	now         time.Time // of the last answer

	out    []byte
	answer answer
	last   *remembered // nil before the first request that was answered here
}

// quickBuffer is what a head must fit into.
const quickBuffer = 4 << 10

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, quickBuffer) }}

func (q *quick) add(conn net.Conn) {
	c := &quickConn{Conn: conn}
	c.in = readers.Get().(*bufio.Reader)
	c.in.Reset(c)
	q.mu.Lock()
	q.conns[c] = struct{}{}
	q.mu.Unlock()
	if q.stopping.Load() && c.state.CompareAndSwap(waiting, finished) {
		c.Close() // it came while the others were closed
	}
	q.work.Go(func() { q.converse(c) })
}

// Read reads from the connection within the deadline that is wanted. A body that came with its head needs none.
func (c *quickConn) Read(p []byte) (int, error) {
	if c.wanted != c.set {
		if err := c.SetReadDeadline(c.wanted); err != nil {
			return 0, err
		}
		c.set = c.wanted
	}
	return c.Conn.Read(p)
}

// within bounds the next read, to an eighth: setting a deadline costs as much as looking at a request.
func (c *quickConn) within(now time.Time, d time.Duration) {
	if left := c.set.Sub(now); left < d-d/8 || left > d {
		c.wanted = now.Add(d)
	} else {
		c.wanted = c.set
	}
}

// converse answers requests until the connection ends, or brings one that is not plain.
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
			least = 4 // less than that after a body is no request, as for net/http
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
		if !c.state.CompareAndSwap(waiting, answering) {
			c.Close()
			return
		}
		if !q.serve(c, r) {
			c.Close()
			return
		}
		c.state.Store(waiting)
		patience = idleTimeout
		if q.stopping.Load() {
			c.Close()
			return
		}
	}
}

func (q *quick) forget(c *quickConn) {
	q.mu.Lock()
	delete(q.conns, c)
	q.mu.Unlock()
	c.in.Reset(nil)
	readers.Put(c.in)
}

// afterBody is what net/http would look at after a body: some old clients send a line break there. HTTP/2 cannot begin
// there, which net/http would not know of a connection that is new to it.
func afterBody(raw []byte) []byte {
	few := raw[:min(4, len(raw))]
	raw = raw[len(few)-len(bytes.TrimLeft(few, "\r\n")):]
	if bytes.HasPrefix(raw, []byte("PRI")) {
		return append([]byte("\r\n"), raw...)
	}
	return raw
}

// handOver gives a connection to net/http, with what was read of it.
func (q *quick) handOver(c *quickConn, raw []byte) {
	if !c.state.CompareAndSwap(waiting, finished) || c.SetDeadline(time.Time{}) != nil {
		c.Close()
		return
	}
	select {
	case q.rest <- accepted{conn: newReplayed(c.Conn, raw)}:
	case <-q.closed:
		c.Close()
	}
}

// serve answers one request, and tells whether the connection can bring another.
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
		c.within(time.Now(), idleTimeout) // for a handler that sets no deadline
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

// linger lets a client that is still sending read its answer, which closing at once might take away from it.
func (c *quickConn) linger() {
	end := time.Now().Add(lingerTime)
	if closeWrite(c.Conn) != nil || c.SetReadDeadline(end) != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c.Conn, skipBytes); err == nil {
		time.Sleep(time.Until(end))
	}
}

const lingerTime = 500 * time.Millisecond

// quickBody is a body of declared length.
type quickBody struct {
	c      *quickConn
	left   int64
	broken bool
	closed atomic.Bool
}

func (b *quickBody) Read(p []byte) (int, error) {
	if b.closed.Load() { // its connection may read the next one
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

// skip passes over what the handler did not read, unless that is much, and tells whether nothing is left. Like net/http it
// does so before the answer: many clients look for one only when they have sent all.
func (b *quickBody) skip() bool {
	if b.left > 0 && !b.broken && b.left <= skipBytes {
		b.c.wanted = time.Now().Add(skipTime)
		n, _ := b.c.in.Discard(int(b.left))
		b.left -= int64(n)
	}
	return b.left == 0
}

// stop ends connections that wait; the others end after their answer.
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

// wait waits for answers until the context ends; then it cuts them.
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
