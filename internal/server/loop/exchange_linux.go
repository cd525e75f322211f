package loop

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/server/loop/h2"
)

// exchange is one request and its response. It is the http.ResponseWriter of the handler, and
// buffers the whole response until the handler has finished.
type exchange struct {
	c       *conn
	request *http.Request
	header  http.Header
	status  int
	typed   bool   // the handler has set a content type
	close   bool   // the handler has set Connection: close
	aborted bool   // the handler panicked: the connection is closed without a response
	pooled  bool   // the exchange goes back to the pool after the response
	in      body   // body of the request
	content []byte // the whole body of the request
	reuse   bool   // the handler no longer uses content
	out     []byte
	body    []byte     // body of the response
	stream  *h2.Stream // nil unless the request came over HTTP/2
	memo    *any       // see Memo

	finisher interface{ Finish() } // completes the response; nil if it is complete
	parked   Parked                // continues the response, which is chunked; nil if the response is complete
}

// exchange returns an exchange for ServeLater, which must not use its ResponseWriter after the
// response is complete. ServeHTTP might still use its ResponseWriter after it has returned, so an
// exchange that was passed to ServeHTTP is never reused.
func (l *loop) exchange() *exchange {
	n := len(l.used)
	if n == 0 {
		return &exchange{header: make(http.Header)}
	}
	x := l.used[n-1]
	l.used = l.used[:n-1]
	return x
}

const (
	mostUsed  = 64  // the maximum number of exchanges, and of bodies, that a loop keeps for reuse
	leastBody = 256 // the capacity of the smallest body that a loop keeps for reuse
)

// body returns an empty buffer for a body of n bytes, or nil if the loop has none.
func (l *loop) body(n int) []byte {
	last := len(l.bodies) - 1
	if last < 0 || n == 0 {
		return nil
	}
	b := l.bodies[last]
	l.bodies = l.bodies[:last]
	if n > cap(b) {
		return nil // drop the buffer: otherwise small ones would keep larger ones out
	}
	return b
}

// recycle keeps the exchange, and its body if the handler allows it, for another request. It drops
// large buffers.
func (x *exchange) recycle(l *loop) {
	x.request.Body = http.NoBody // the connection may use the request again, which must not refer to this exchange
	if x.reuse && cap(x.content) >= leastBody && cap(x.content) <= maxHead && len(l.bodies) < mostUsed {
		l.bodies = append(l.bodies, x.content[:0])
	}
	if len(l.used) == mostUsed {
		return
	}
	clear(x.header)
	*x = exchange{header: x.header, out: x.out[:0], body: x.body[:0]}
	if cap(x.out) > maxHead {
		x.out = nil
	}
	if cap(x.body) > maxHead {
		x.body = nil
	}
	l.used = append(l.used, x)
}

// receive sets the request and its body.
func (x *exchange) receive(r *http.Request, content []byte) {
	x.request, x.content = r, content
	x.in.left = content
	r.Body = &x.in
	if len(content) == 0 {
		r.Body = http.NoBody
	}
}

// ReuseBody says that the handler is done with the body that it has taken over (see body.Take).
func (x *exchange) ReuseBody() { x.reuse = true }

// Ready says that f.Finish can complete the response; see Later.
func (x *exchange) Ready(f interface{ Finish() }) {
	x.finisher = f
	x.c.l.post(message{exchange: x})
}

func (x *exchange) Header() http.Header { return x.header }

// WriteHeader sets the status and the header fields of the response. Later calls, and later changes
// to the header, have no effect. WriteHeader ignores informational statuses (1xx).
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= 200 {
		x.out = x.BeginHead(status)
	}
}

// BeginHead and EndHead together do the same as WriteHeader and add header fields. BeginHead returns
// a buffer, to which the handler appends complete lines, with names in canonical form. Then the
// handler passes the buffer to EndHead. The parameter typed says whether a line has the content type.
// The lines must not contain fields that the server sets itself (see the method field): the server
// does not check them. BeginHead must be called once, and before WriteHeader.
func (x *exchange) BeginHead(status int) []byte {
	x.status = status
	b := appendStatus(x.out[:0], status)
	for name, values := range x.header {
		for _, v := range values {
			b = x.field(b, name, v)
		}
	}
	return b
}

// EndHead ends what BeginHead began.
func (x *exchange) EndHead(head []byte, typed bool) { x.out, x.typed = head, x.typed || typed }

// Flush has no effect: everything is sent when the handler has finished.
func (x *exchange) Flush() {}

// Park parks the response: what the handler has written so far is sent when the handler has finished,
// and then p continues the response. It returns false over TLS, where nothing is parked. Otherwise the
// handler must not write any more.
func (x *exchange) Park(p Parked) bool {
	if x.c.session != nil || x.stream != nil {
		return false
	}
	x.parked = p
	return true
}

// leave tells a parked response that it cannot be sent.
func (x *exchange) leave() {
	if p := x.parked; p != nil {
		x.parked = nil
		x.c.l.try(func() { p.Left(net.ErrClosed) })
	}
}

// Memo returns a place where the handler can keep what it has found out from the header fields of the
// request. The loop clears the place when the connection sends other header fields. Requests with
// the same memo may differ in the path and in Content-Length.
func (x *exchange) Memo() *any { return x.memo }

// appendStatus appends the first line of a response.
func appendStatus(b []byte, status int) []byte {
	if status == http.StatusAccepted { // the response to nearly all publishes
		return append(b, "HTTP/1.1 202 Accepted\r\n"...)
	}
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	return append(b, "\r\n"...)
}

// field appends a header field, unless the server sets this field itself.
func (x *exchange) field(b []byte, name, value string) []byte {
	switch name {
	case "Content-Length", "Transfer-Encoding", "Date", "Trailer":
		return b
	case "Connection":
		x.close = x.close || strings.EqualFold(value, "close")
		return b
	case "Content-Type":
		x.typed = true
	}
	if !fieldName(name) {
		return b // net/http drops fields with invalid names too
	}
	b = append(b, name...)
	b = append(b, ": "...)
	b = appendField(b, value)
	return append(b, "\r\n"...)
}

func (x *exchange) Write(p []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	if !hasBody(x.status) {
		return 0, http.ErrBodyNotAllowed
	}
	x.body = append(x.body, p...)
	return len(p), nil
}

// SetReadDeadline is called by http.ResponseController. It has no effect, because the whole body has
// arrived.
func (x *exchange) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is called by http.ResponseController. It has no effect, because nothing is
// written before the handler has finished.
func (x *exchange) SetWriteDeadline(time.Time) error { return nil }

// isLast reports whether the connection must be closed after the response.
func (x *exchange) isLast() bool {
	return x.request.Close || x.close || x.c.l.set.stopping.Load()
}

// encode returns the response, or the beginning of a parked response. If the parameter last is true,
// the response says that the connection will be closed.
func (x *exchange) encode(now time.Time, last bool) []byte {
	b := x.head(now)
	if last {
		b = append(b, "Connection: close\r\n"...)
	}
	b = append(b, "\r\n"...)
	if x.parked != nil && len(x.body) > 0 {
		b = append(strconv.AppendUint(b, uint64(len(x.body)), 16), "\r\n"...)
		b = append(append(b, x.body...), "\r\n"...)
	} else {
		b = append(b, x.body...)
	}
	x.out = b
	return b
}

// head returns the first line of the response and the header fields, without the blank line.
func (x *exchange) head(now time.Time) []byte {
	x.WriteHeader(http.StatusOK)
	b := x.out
	if !x.typed && len(x.body) > 0 && hasBody(x.status) {
		b = append(b, "Content-Type: "...)
		b = append(b, http.DetectContentType(x.body)...)
		b = append(b, "\r\n"...)
	}
	switch {
	case x.parked != nil:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case hasBody(x.status):
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(x.body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "Date: "...)
	b = append(b, Date(now)...)
	return append(b, "\r\n"...)
}

// lines returns the header fields of the response, without the first line.
func (x *exchange) lines(now time.Time) []byte {
	x.out = x.head(now)
	return x.out[bytes.IndexByte(x.out, '\n')+1:]
}

// body is the body of a request. It has arrived completely.
type body struct {
	mu   sync.Mutex // a handler may keep the body and read it after the handler has returned
	left []byte
	over bool // the handler has returned
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, b.left)
	if b.left = b.left[n:]; len(b.left) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// Take returns what is left of the body. The caller owns it.
func (b *body) Take() []byte {
	left := b.left
	b.left = nil
	return left
}

func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return nil
}

// hasBody reports whether a response with this status can have a body.
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// fieldName reports whether s can be the name of a header field.
func fieldName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == ':' || s[i] >= 0x7f {
			return false
		}
	}
	return s != ""
}

// appendField appends a value in which every line break is replaced by a space. With a line break,
// a value could inject another header field.
func appendField(b []byte, v string) []byte {
	from := len(b)
	b = append(b, v...)
	for i := from; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' {
			b[i] = ' '
		}
	}
	return b
}
