package server

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
)

// A client sends the same header fields with every request. So those of the last request are kept as they came, and what
// was made of them is used again for a request that has the same, or the same but for the digits of its length. A handler
// may look at the URL and the header until it returns, and must not change them (net/http says so too).

// remembered is the last request of a connection that http.ReadRequest has parsed.
type remembered struct {
	request http.Request
	fields  []byte // its header fields as they came, with the blank line; empty: none is remembered
	digits  [2]int // where in fields the length is; 0, 0: nowhere
}

// maxRemembered is how long the header fields may be that a connection keeps.
const maxRemembered = 1 << 10

// remember keeps a request, of which raw is the head and what follows, unless it has more than one length.
func (m *remembered) remember(raw []byte, r *http.Request) {
	m.fields = m.fields[:0]
	fields := raw[bytes.IndexByte(raw, '\n')+1:]
	fields = fields[:bytes.Index(fields, blankLine)+len(blankLine)]
	lengths := r.Header["Content-Length"]
	if len(fields) > maxRemembered || len(lengths) > 1 {
		return
	}
	m.digits = [2]int{}
	if len(lengths) == 1 {
		if m.digits = findLength(fields); m.digits[1] == 0 {
			return
		}
	}
	m.fields, m.request = append(m.fields, fields...), *r
}

var contentLength = []byte("content-length:")

// findLength finds the digits of the length; 0, 0 when they are not alone behind the name and a space.
func findLength(fields []byte) [2]int {
	for at := 0; at < len(fields); at += bytes.IndexByte(fields[at:], '\n') + 1 {
		line := fields[at:]
		if n := len(contentLength); len(line) > n && bytes.EqualFold(line[:n], contentLength) && line[n] == ' ' {
			from := at + n + 1
			if end := from + countDigits(fields[from:]); end > from && fields[end] == '\r' {
				return [2]int{from, end}
			}
		}
	}
	return [2]int{}
}

// countDigits counts the digits that b begins with, if they are few enough for a number.
func countDigits(b []byte) int {
	n := 0
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	if n > 15 {
		return 0
	}
	return n
}

// again makes a request whose header fields are remembered, and reads its head; nil when they are others, or when the path
// has anything in it that would have to be decoded.
func (c *quickConn) again(raw []byte) *http.Request {
	m := c.last
	end := bytes.IndexByte(raw, '\n')
	if m == nil || len(m.fields) == 0 || !bytes.HasPrefix(raw, post) || !bytes.HasSuffix(raw[:end+1], version11) {
		return nil
	}
	path := raw[len(post)-1 : end+1-len(version11)]
	if !plainPath(path) {
		return nil
	}
	fields := raw[end+1:]
	size, from, to := 0, m.digits[0], m.digits[1]
	if to > 0 {
		if !bytes.HasPrefix(fields, m.fields[:from]) {
			return nil
		}
		fields = fields[from:]
		if size = countDigits(fields); size == 0 {
			return nil
		}
	}
	if !bytes.HasPrefix(fields[size:], m.fields[to:]) {
		return nil
	}
	if of := m.request.Header["Content-Length"]; size > 0 && string(fields[:size]) != of[0] {
		text := string(fields[:size])
		m.request.ContentLength, _ = strconv.ParseInt(text, 10, 64)
		m.request.Header["Content-Length"] = []string{text}
	}
	if string(path) != m.request.RequestURI {
		m.request.RequestURI = string(path)
		m.request.URL = &url.URL{Path: m.request.RequestURI}
	}
	r := new(http.Request)
	*r = m.request
	// Of the head nothing more is looked at, so it need not be there any longer.
	c.in.Discard(end + 1 + from + size + len(m.fields) - to)
	return r
}

// plainPath tells whether a path stands for itself: it begins with one slash, and has nothing that is written otherwise than
// it is meant.
func plainPath(path []byte) bool {
	if len(path) > 1 && path[1] == '/' {
		return false
	}
	for _, b := range path {
		if !nameBytes[b] && b != '/' && b != '_' && b != '.' && b != '~' {
			return false
		}
	}
	return true
}
