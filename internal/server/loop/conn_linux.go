package loop

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
)

// conn is a connection. Only the goroutine of its loop uses it. An idle connection has no buffer. A
// connection may have a parked response, which continues after its handler has returned (see
// Parked).
type conn struct {
	wait
	l      *loop
	fd     int // -1 once the connection is closed, or handed over to net/http or to a goroutine
	place  Place
	remote string // the address of the client; empty after a parked response, until a request needs it

	woken    atomic.Bool // the loop has been asked to call parked.Continue; set by other goroutines
	idle     bool        // a heartbeat is due on the parked response
	readable bool        // a read may return something: data, the end of the connection or an error
	ended    bool        // the client has closed its sending side, or the connection failed; a read will tell which
	served   bool        // the connection has had a request
	last     bool        // the connection is closed after the response that is being sent
	in       []byte      // data that was read and belongs to no request yet
	out      []byte      // the part of a response that the client has not accepted yet
	exchange *exchange   // the request that a handler is answering; nil if there is none
	parked   Parked      // the response that has been parked; nil if there is none

	previous *remembered // the previous request; nil before the first
	session  *Session    // nil on a cleartext connection
	greet    bool        // the client has agreed to speak HTTP/2, and has to send the preface
	multi    *multi      // nil unless the connection speaks HTTP/2
}

// isIdle reports whether the connection has no request.
func (c *conn) isIdle() bool {
	return c.exchange == nil && c.parked == nil && len(c.out) == 0 && (c.multi == nil || c.multi.IsIdle())
}

// handle handles events of the connection.
func (c *conn) handle(events uint32) {
	if events&(syscall.EPOLLIN|syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		c.readable = true
		c.ended = c.ended || events&(syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0
	}
	if c.multi != nil {
		c.multi.pump()
		return
	}
	if c.parked != nil {
		c.handleParked()
		return
	}
	if len(c.out) > 0 {
		c.write(c.out)
	}
	c.advance()
}

// advance handles requests until one is in flight, or until more data is needed.
func (c *conn) advance() {
	for parsed := false; c.fd >= 0 && c.isIdle() && c.multi == nil; {
		if len(c.in) > 0 && !parsed {
			parsed = !c.take(c.in)
			continue
		}
		if !c.readable {
			c.await()
			return
		}
		held := len(c.in)
		n, more, err := c.read(c.l.buf[held:])
		switch {
		case err == errLater:
			c.readable = c.ended && more
		case err != nil || n == 0 && (held == 0 || c.served && held < 4): // like net/http, if fewer than 4 bytes follow a response, ignore them; see take
			c.close()
		case n == 0: // the client stopped sending within a request
			c.handOver(c.in)
		default:
			c.readable = c.ended || more
			raw := c.l.buf[:n]
			if held > 0 {
				c.in = append(c.in, c.l.buf[held:held+n]...)
				raw = c.in
			}
			if c.session != nil && c.session.isCostly(len(c.l.buf)) {
				c.handOver(raw)
				return
			}
			parsed = !c.take(raw)
		}
	}
}

// read reads what has arrived, as much as fits into b. It returns errLater if nothing has arrived,
// and 0 if the client has stopped sending. If the result more is true, another read may return
// something even if the poller reports nothing.
func (c *conn) read(b []byte) (n int, more bool, err error) {
	if c.session != nil {
		err = net.ErrClosed // if crypto/tls panics
		c.l.try(func() { n, more, err = c.session.read(b) })
		return n, more, err
	}
	n, err = c.receive(b)
	return n, n == len(b), err
}

// receive reads from the connection. It returns errLater if nothing has arrived.
func (c *conn) receive(b []byte) (int, error) {
	for {
		n, err := read(c.fd, b)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			err = errLater
		}
		return n, err
	}
}

// await lets the connection wait for data. A client that sends a request in many small pieces does
// not get more time with each piece.
func (c *conn) await() {
	of := forHead
	switch {
	case len(c.in) >= 4 || len(c.in) > 0 && !c.served:
		of = forRest
	case c.served:
		of = forRequest
	}
	if q := &c.l.waits[of]; c.queue != q {
		q.add(c, c.l.now)
	}
}

// take parses the request at the start of raw and begins to handle it. It returns false if that
// request is incomplete. It stores unused data in c.in.
func (c *conn) take(raw []byte) bool {
	if c.mayBeHTTP2(raw) {
		return c.meet(raw)
	}
	if c.previous == nil {
		c.previous = new(remembered)
	}
	if c.served && len(raw) < 4 { // after a response, net/http also waits until it has 4 bytes
		c.keep(raw)
		return false
	}
	r, head, v := c.l.parser.next(c.previous, raw)
	switch v {
	case other:
		c.handOver(raw)
		return true
	case partial:
		c.keep(raw)
		return false
	}
	if !c.place.Begin() {
		c.close()
		return true
	}
	c.stopWaiting()
	end := head + int(r.ContentLength)
	if c.remote == "" {
		c.remote = peer(c.fd).String()
	}
	r.RemoteAddr = c.remote
	if c.session != nil {
		r.TLS = &c.session.state
	}
	content := append(c.l.body(end-head), raw[head:end]...)
	c.keep(raw[end:])
	if !c.begin(r, content) {
		c.handOver(raw)
	}
	return true
}

// keep keeps data for later. raw may be a part of c.in.
func (c *conn) keep(raw []byte) {
	switch {
	case len(raw) == 0:
		c.in = nil
	case len(c.in) >= len(raw) && &c.in[len(c.in)-len(raw)] == &raw[0]:
		c.in = raw
	default:
		c.in = bytes.Clone(raw)
	}
}

// begin passes a request to the handler. The parameter content is the body of the request. If begin
// returns false, net/http must serve the request. This is so for a GET that the handler did not take
// over, because ServeHTTP might send a long response to it, and for a GET over TLS, because a
// response over TLS cannot be parked.
func (c *conn) begin(r *http.Request, content []byte) bool {
	reads := r.Method == http.MethodGet
	if later := c.l.set.later; later != nil && !(reads && c.session != nil) {
		x := c.l.exchange()
		x.c, x.memo, x.pooled = c, &c.previous.memo, true
		x.receive(r, content)
		c.exchange = x
		var taken, done bool
		c.l.guard(x, func() { taken, done = later.ServeLater(x, r) })
		switch {
		case x.aborted || done:
			c.send(x)
			return true
		case taken:
			c.l.unflushed = c.l.unflushed || c.l.set.flusher != nil && !reads
			return true
		}
		c.exchange = nil
		x.recycle(c.l)
	}
	if reads {
		return false
	}
	kept := *r // a copy, because the handler may keep the request after the handler has returned
	c.previous.lent = true
	x := &exchange{c: c, header: make(http.Header)}
	x.receive(&kept, content)
	c.exchange = x
	c.l.set.handlers.serve(x)
	return true
}

// guard calls a function of a handler. If the function panics, the connection is closed without a
// response, as in net/http.
func (l *loop) guard(x *exchange, f func()) {
	if !l.try(f) {
		x.aborted = true
	}
}

// try calls a function of a handler. It returns false if the function panicked.
func (l *loop) try(f func()) (ok bool) {
	defer func() {
		p := recover()
		if ok {
			return
		}
		if err, is := p.(error); !is || !errors.Is(err, http.ErrAbortHandler) {
			l.set.options.Logger.Error("panic", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}

// send sends the response of an exchange.
func (c *conn) send(x *exchange) {
	x.request.Body.Close()
	c.exchange = nil
	if x.aborted {
		x.leave()
		c.close()
		return
	}
	if x.parked != nil {
		c.park(x)
		return
	}
	c.last = x.isLast()
	c.seal(x.encode(c.l.now, c.last))
	if x.pooled {
		x.recycle(c.l)
	}
}

// seal sends a whole response, over TLS if the connection has a session.
func (c *conn) seal(b []byte) {
	if c.session != nil {
		err := net.ErrClosed // if crypto/tls panics
		c.l.try(func() { b, err = c.session.seal(b) })
		if err != nil {
			c.close()
			return
		}
	}
	c.write(b)
}

// write sends b, which is a whole response or its last part, as the client gets it.
func (c *conn) write(b []byte) {
	if !c.transmit(b, forClient) {
		return
	}
	c.served = true
	if c.last {
		c.close()
		return
	}
	c.place.Rest(c.l.now)
}

// transmit sends b, or the part of it that the client accepts now. It returns true if nothing is
// left. Otherwise it keeps the rest in c.out, and lets the connection wait for the client.
func (c *conn) transmit(b []byte, wait int) bool {
	n, err := write(c.fd, b)
	if err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
		c.close()
		return false
	}
	if n = max(n, 0); n < len(b) {
		if len(c.out) == 0 || n > 0 && c.multi != nil {
			c.l.waits[wait].add(c, c.l.now)
		}
		if len(c.out) == 0 {
			b = bytes.Clone(b)
		}
		c.out = b[n:]
		return false
	}
	c.out = nil
	return true
}

// close closes the connection.
func (c *conn) close() {
	c.leave(net.ErrClosed)
	if c.session != nil && c.fd >= 0 && len(c.out) == 0 {
		_, _ = write(c.fd, c.session.end()) // the client learns from it that nothing was cut off
	}
	if fd := c.forget(); fd >= 0 {
		syscall.Close(fd)
		c.place.Leave()
	}
}

// forget removes the connection from its loop and returns its descriptor.
func (c *conn) forget() int {
	fd := c.fd
	if fd < 0 {
		return fd
	}
	if c.multi != nil {
		c.multi.Close()
	}
	c.stopWaiting()
	c.l.conns[fd] = nil
	c.l.open--
	c.fd, c.in, c.out = -1, nil, nil
	return fd
}

// handOver passes the connection to net/http. raw is the data that belongs to no request yet.
func (c *conn) handOver(raw []byte) {
	raw = bytes.Clone(raw)
	if c.served {
		raw = afterBody(raw, c.previous != nil && c.previous.request.Method == http.MethodPost)
	}
	if !c.place.Begin() {
		c.close()
		return
	}
	if to, err := c.release(); err == nil {
		c.l.set.options.HandOver(to, c.place, c.session, raw)
	}
}

// release removes the connection from its loop and returns it in a form that goroutines can use. If
// that fails, the connection is closed.
func (c *conn) release() (*net.TCPConn, error) {
	fd := c.forget()
	syscall.EpollCtl(c.l.poller.inner, syscall.EPOLL_CTL_DEL, fd, nil)
	file := os.NewFile(uintptr(fd), "connection")
	to, err := net.FileConn(file) // a duplicate of the descriptor
	file.Close()
	if err != nil {
		c.l.set.options.Logger.Warn("handing over a connection failed", "error", err)
		c.place.Leave()
		return nil, err
	}
	return to.(*net.TCPConn), nil
}

func result(n uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// peer returns the address of the client. As text, it has the form of http.Request.RemoteAddr.
func peer(fd int) netip.AddrPort {
	a, _ := syscall.Getpeername(fd)
	return address(a)
}

// local returns the address to which the client has connected.
func local(fd int) netip.AddrPort {
	a, _ := syscall.Getsockname(fd)
	return address(a)
}

func address(a syscall.Sockaddr) (at netip.AddrPort) {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		at = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *syscall.SockaddrInet6:
		at = netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return at
}

func duplicate(fd int) (int, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	return result(n, errno)
}
