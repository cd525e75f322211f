package server

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// answer is the http.ResponseWriter of a quick request. It keeps the answer until the handler has returned, and is used
// again for the next one.
type answer struct {
	c      *quickConn
	header http.Header
	status int
	typed  bool // the header has a content type
	close  bool // the handler asked for it
	body   []byte
}

func (a *answer) begin() {
	if cap(a.body) > quickBuffer {
		a.body = nil
	}
	clear(a.header)
	a.status, a.typed, a.close, a.body = 0, false, false, a.body[:0]
}

func (a *answer) Header() http.Header { return a.header }

// WriteHeader writes the head down: changes to the header after it have no effect. Only a final status counts.
func (a *answer) WriteHeader(status int) { a.WriteFields(status, nil) }

// WriteFields is WriteHeader with fields beside those of the header: names in canonical form, and values. A handler that
// has a list of them need not make a map of it.
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

// field appends a field, unless it is one that is ours to say.
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
		return b // as net/http does
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

// SetReadDeadline implements what http.ResponseController looks for.
func (a *answer) SetReadDeadline(t time.Time) error {
	a.c.wanted = t
	return nil
}

// SetWriteDeadline implements what http.ResponseController looks for: nothing is written before the handler returns.
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

// send sends the answer. A client that does not take it gets as long as an idle one.
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

func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// fieldName tells whether a name can stand in a head.
func fieldName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == ':' || s[i] >= 0x7f {
			return false
		}
	}
	return s != ""
}

// appendField appends a value, with a space for every line break, so that nobody can begin a line of their own.
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

// today is the date of this second, in the form of the header field.
var today atomic.Pointer[second]

type second struct {
	unix int64
	text string
}

func date(now time.Time) string {
	s := today.Load()
	if s == nil || s.unix != now.Unix() {
		s = &second{now.Unix(), now.UTC().Format(http.TimeFormat)}
		today.Store(s)
	}
	return s.text
}
