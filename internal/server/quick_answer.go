package server

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// answer is the http.ResponseWriter of the quick path, which serves simple requests without
// net/http. An answer buffers the whole response until the handler has returned. The connection
// uses the same answer for its next request.
type answer struct {
	c      *quickConn
	header http.Header
	status int
	typed  bool // the handler has set a content type
	close  bool // the handler has set Connection: close
	body   []byte
}

// begin resets the answer for the next request. It releases a large buffer, so that one long
// response does not use memory until the connection is closed.
func (a *answer) begin() {
	if cap(a.body) > quickBuffer {
		a.body = nil
	}
	clear(a.header)
	a.status, a.typed, a.close, a.body = 0, false, false, a.body[:0]
}

func (a *answer) Header() http.Header { return a.header }

// WriteHeader sets the status and the header fields of the response. Later calls, and later changes
// to the header, have no effect. WriteHeader ignores informational statuses (1xx).
func (a *answer) WriteHeader(status int) { a.WriteFields(status, nil) }

// WriteFields does the same as WriteHeader and adds header fields, each a canonical name and a
// value. With WriteFields, a handler that has its fields in a list need not put them into a map.
func (a *answer) WriteFields(status int, fields [][2]string) {
	if a.status != 0 || status < 200 {
		return
	}
	a.status = status
	b := append(a.c.out[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	b = append(b, "\r\n"...)
	for name, values := range a.header {
		for _, v := range values {
			b = a.field(b, name, v)
		}
	}
	for i := range fields {
		b = a.field(b, fields[i][0], fields[i][1])
	}
	a.c.out = b
}

// field appends a header field, unless the server sets this field itself.
func (a *answer) field(b []byte, name, value string) []byte {
	switch name {
	case "Content-Length", "Transfer-Encoding", "Date", "Trailer":
		return b
	case "Connection":
		a.close = a.close || strings.EqualFold(value, "close")
		return b
	case "Content-Type":
		a.typed = true
	}
	if !fieldName(name) {
		return b // net/http drops fields with invalid names too
	}
	b = append(b, name...)
	b = append(b, ": "...)
	b = appendField(b, value)
	return append(b, "\r\n"...)
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if !hasBody(a.status) {
		return 0, http.ErrBodyNotAllowed
	}
	a.body = append(a.body, p...)
	return len(p), nil
}

// SetReadDeadline is called by http.ResponseController. The deadline applies from the next read
// from the network. A deadline before the start of this process has a special meaning: once it is
// set, all reads fail, including one that is waiting. Only such a deadline may be set by a
// goroutine other than the handler's.
func (a *answer) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(started) {
		return a.c.cutOff()
	}
	a.c.wanted = t
	return nil
}

var started = time.Now()

// SetWriteDeadline is called by http.ResponseController. It has no effect, because nothing is
// written before the handler returns.
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

// send sends the response in one write. If the parameter last is true, the response says that the
// connection will be closed. The client has at least idleTimeout to receive the response. send
// extends the write deadline only if less than idleTimeout is left, which saves a system call for
// most responses.
func (a *answer) send(last bool) error {
	a.WriteHeader(http.StatusOK)
	b := a.c.out
	now := time.Now()
	a.c.now = now
	if hasBody(a.status) {
		if !a.typed && len(a.body) > 0 {
			b = append(b, "Content-Type: "...)
			b = append(b, http.DetectContentType(a.body)...)
			b = append(b, "\r\n"...)
		}
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(a.body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "Date: "...)
	b = append(b, date(now)...)
	if last {
		b = append(b, "\r\nConnection: close"...)
	}
	b = append(b, "\r\n\r\n"...)
	b = append(b, a.body...)
	if cap(b) <= quickBuffer {
		a.c.out = b
	} else {
		a.c.out = nil
	}
	if a.c.writeUntil.Sub(now) < idleTimeout {
		a.c.writeUntil = now.Add(idleTimeout + idleTimeout/8)
		if err := a.c.SetWriteDeadline(a.c.writeUntil); err != nil {
			return err
		}
	}
	_, err := a.c.Write(b)
	return err
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

// today caches the value of the Date field, for all connections. The value changes once per second.
var today atomic.Pointer[second]

type second struct {
	unix int64
	text string
}

// date returns the value of the Date field.
func date(now time.Time) string {
	s := today.Load()
	if s == nil || s.unix != now.Unix() {
		s = &second{now.Unix(), now.UTC().Format(http.TimeFormat)}
		today.Store(s)
	}
	return s.text
}
