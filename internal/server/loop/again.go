package loop

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
)

// A client usually sends the same header fields with every request. So a connection keeps the
// header fields of its last request as bytes, together with the parsed request. If the header
// fields of the next request are the same bytes, or differ only in the digits of Content-Length,
// the loop uses the parsed request again instead of parsing the next one.
//
// The requests then share the URL and the header. A handler may read them until it has finished, and
// must not change them. net/http requires the same.

// remembered is the last request that http.ReadRequest parsed on a connection. Its header fields
// contain Content-Length at most once.
type remembered struct {
	request http.Request
	fields  []byte // header fields as received, with the blank line; empty if they were not kept
	digits  [2]int // start and end of the digits of Content-Length in fields; 0, 0 if there is none
	lent    bool   // a handler may keep the URL of the request
	memo    any    // what the handler has found out from the fields, see exchange.Memo
}

// maxRemembered is the maximum length, in bytes, of header fields that a connection keeps.
const maxRemembered = 1 << 10

// remember keeps the header fields of a request. It does not keep long header fields, nor fields with
// an unusual Content-Length. After such a request, the next request is always parsed. If there is
// more than one Content-Length, remember returns false, and the request must go to net/http.
func (m *remembered) remember(fields []byte) bool {
	m.fields, m.memo = m.fields[:0], nil
	lines, digits := findLength(fields)
	if len(fields) <= maxRemembered && (lines == 0 || digits[1] > 0) {
		m.fields, m.digits = append(m.fields, fields...), digits
	}
	return lines <= 1
}

var contentLength = []byte("content-length:")

// findLength returns the number of Content-Length lines, and the start and end of the digits in the
// last of these lines. Start and end are 0, 0 if that line has another form than the name, one
// space and digits.
//
// findLength counts the lines in the received bytes. It cannot use a parsed request, because the
// header of a parsed request has one Content-Length even if the client sent several equal lines. If
// the next request then changed only one of these lines, the server would ignore the others, and
// might disagree with a proxy about where the request ends.
func findLength(fields []byte) (lines int, digits [2]int) {
	for at := 0; at < len(fields); at += bytes.IndexByte(fields[at:], '\n') + 1 {
		line := fields[at:]
		n := len(contentLength)
		if len(line) < n || !bytes.EqualFold(line[:n], contentLength) {
			continue
		}
		lines, digits = lines+1, [2]int{}
		if from := at + n + 1; line[n] == ' ' {
			if end := from + countDigits(fields[from:]); end > from && fields[end] == '\r' {
				digits = [2]int{from, end}
			}
		}
	}
	return lines, digits
}

// countDigits returns the number of digits at the start of b, or 0 if there are more than 15. No
// real length has more than 15 digits, and a number with 15 digits fits an int64.
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

// recall returns the next request, and the length of its head, if its method and header fields are
// the remembered ones. It returns nil if the method or the fields are different, if the path has to
// be decoded, or if the head is not complete.
func (m *remembered) recall(raw []byte) (*http.Request, int) {
	end, start := bytes.IndexByte(raw, '\n'), plainStart(raw)
	if len(m.fields) == 0 || start == nil || string(start[:len(start)-2]) != m.request.Method || !bytes.HasSuffix(raw[:end+1], version11) {
		return nil, 0
	}
	path := raw[len(start)-1 : end+1-len(version11)]
	same := string(path) == m.request.RequestURI
	if !same && !plainPath(path) {
		return nil, 0
	}
	fields := raw[end+1:]
	size, from, to := 0, m.digits[0], m.digits[1]
	if to > 0 {
		if !bytes.HasPrefix(fields, m.fields[:from]) {
			return nil, 0
		}
		fields = fields[from:]
		if size = countDigits(fields); size == 0 {
			return nil, 0
		}
	}
	if !bytes.HasPrefix(fields[size:], m.fields[to:]) {
		return nil, 0
	}
	if of := m.request.Header["Content-Length"]; size > 0 && string(fields[:size]) != of[0] {
		text := string(fields[:size])
		m.request.ContentLength, _ = strconv.ParseInt(text, 10, 64)
		m.request.Header["Content-Length"] = []string{text}
	}
	if !same {
		m.request.RequestURI = string(path)
		if m.lent {
			m.request.URL, m.lent = new(url.URL), false
		}
		*m.request.URL = url.URL{Path: m.request.RequestURI}
	}
	return &m.request, end + 1 + from + size + len(m.fields) - to
}

// plainPath reports whether a request path can be used as URL.Path without decoding. Such a path
// has no escapes, no query and no special characters. It also does not begin with two slashes,
// because URL parsers do not agree on what these mean.
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
