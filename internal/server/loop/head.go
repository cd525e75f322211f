package loop

import (
	"bufio"
	"bytes"
	"net/http"
)

// verdict says what a loop does with the data that has arrived on a connection.
type verdict int

const (
	whole   verdict = iota // the data begins with a plain request, which is complete
	partial                // the data is the beginning of what may be a plain request
	other                  // net/http must decide about the data
)

// parser parses requests. It belongs to one loop.
type parser struct {
	raw bytes.Reader
	in  *bufio.Reader
}

// next parses the request that raw begins with. If the verdict is whole, r is the request without
// its body, and head is the length of its head. The parameter m holds the previous request of the
// connection. The method next replaces it with r, so r is valid until the next call with m.
func (p *parser) next(m *remembered, raw []byte) (r *http.Request, head int, v verdict) {
	if r, head = m.recall(raw); r == nil {
		end := bytes.Index(raw, blankLine)
		if end < 0 {
			if len(raw) >= maxHead || !mayBePlain(raw) {
				return nil, 0, other
			}
			return nil, 0, partial
		}
		head = end + len(blankLine)
		fields := plainHead(raw[:min(head, maxHead)])
		if fields == nil || bytes.HasPrefix(raw, get) && !bytes.Contains(fields, eventStream) || !m.remember(fields) {
			return nil, 0, other
		}
		if r = p.parse(raw[:head]); r == nil {
			m.fields = m.fields[:0]
			return nil, 0, other
		}
		m.request, m.lent = *r, false
		r = &m.request
	}
	switch {
	case r.ContentLength > MaxBody, r.ContentLength > 0 && r.Method == http.MethodGet:
		return nil, 0, other
	case int64(len(raw)-head) < r.ContentLength:
		return nil, 0, partial
	}
	return r, head, whole
}

// parse parses the head of a request. It returns nil if the request must go to net/http.
func (p *parser) parse(head []byte) *http.Request {
	p.raw.Reset(head)
	if p.in == nil {
		p.in = bufio.NewReaderSize(&p.raw, maxHead)
	}
	p.in.Reset(&p.raw)
	r, err := http.ReadRequest(p.in)
	if err != nil || r.ContentLength < 0 || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 || !plainHost(r.Host) {
		return nil
	}
	for _, name := range [...]string{"Expect", "Upgrade", "Http2-Settings", "Te", "Proxy-Connection"} {
		if _, has := r.Header[name]; has {
			return nil
		}
	}
	if v := r.Header["Connection"]; len(v) > 1 || len(v) == 1 && v[0] != "keep-alive" && v[0] != "close" {
		return nil
	}
	r.Body = nil // the body of ReadRequest would read from the buffer of the parser
	return r
}

var (
	// plainStarts are the beginnings of plain requests: the method, a space and a slash.
	plainStarts = [][]byte{get, []byte("POST /"), []byte("PUT /")}

	// A GET is plain only if its head has arrived as a whole, and if the header fields contain this
	// media type.
	get         = []byte("GET /")
	eventStream = []byte("text/event-stream")

	version11 = []byte(" HTTP/1.1\r\n")
	blankLine = []byte("\r\n\r\n")
)

// plainStart returns the one of plainStarts that raw begins with, or nil.
func plainStart(raw []byte) []byte {
	for _, start := range plainStarts {
		if bytes.HasPrefix(raw, start) {
			return start
		}
	}
	return nil
}

// mayBePlain reports whether raw, which is incomplete, may become a plain request when more data has
// arrived.
func mayBePlain(raw []byte) bool {
	for _, start := range plainStarts[1:] {
		if n := min(len(raw), len(start)); string(raw[:n]) == string(start[:n]) {
			return true
		}
	}
	return false
}

// plainHead checks that raw begins with the complete head of an HTTP/1.1 request to a path, with
// the method GET, POST or PUT, and that every line of the head is printable ASCII and ends with CR
// LF. If so, it returns the header fields, with the blank line. Otherwise it returns nil.
//
// plainHead is strict on purpose. HTTP parsers disagree on bare line feeds, folded lines, spaces
// before a colon and control characters, and attackers use these for request smuggling. So only
// net/http decides about them.
func plainHead(raw []byte) []byte {
	if plainStart(raw) == nil {
		return nil
	}
	end := bytes.Index(raw, blankLine)
	if end < 0 {
		return nil
	}
	head := raw[:end+2]
	line := bytes.IndexByte(head, '\n')
	if !bytes.HasSuffix(head[:line+1], version11) {
		return nil
	}
	for _, b := range head[:line-1] {
		if b < ' ' || b > '~' {
			return nil
		}
	}
	for lines := head[line+1:]; len(lines) > 0; {
		n := plainField(lines)
		if n == 0 {
			return nil
		}
		lines = lines[n:]
	}
	return raw[line+1 : end+len(blankLine)]
}

// plainField returns the length of the first line, including its CR LF, if the line is a header
// field: a name of letters, digits and hyphens, a colon, and printable ASCII. Otherwise it returns
// 0. The last line must end with CR LF. Otherwise plainField would index past the end.
func plainField(lines []byte) int {
	i := 0
	for nameBytes[lines[i]] {
		i++
	}
	if i == 0 || lines[i] != ':' {
		return 0
	}
	for i++; lines[i] >= ' ' && lines[i] <= '~'; i++ {
	}
	if lines[i] != '\r' || lines[i+1] != '\n' {
		return 0
	}
	return i + 2
}

// nameBytes is true for letters, digits and the hyphen.
var nameBytes = func() (t [256]bool) {
	for b := range t {
		t[b] = 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '-'
	}
	return t
}()

// plainHost reports whether a host is not empty and consists only of characters that occur in host
// names, IP addresses and ports.
func plainHost(h string) bool {
	for i := range len(h) {
		b := h[i]
		if !('a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '.' || b == '-' || b == ':' || b == '[' || b == ']') {
			return false
		}
	}
	return h != ""
}

// afterBody adjusts the data that follows an earlier request, before the connection is handed over.
// To net/http, a connection that is handed over is new, and net/http treats the start of a connection
// differently from data after a request, in two ways. After the body of a POST, it skips a line break,
// which some old clients send; so afterBody removes the line break if the earlier request was a POST
// (the parameter post). At the start of a connection, it takes PRI for the start of HTTP/2; so
// afterBody puts a line break before PRI.
func afterBody(raw []byte, post bool) []byte {
	if post {
		few := raw[:min(4, len(raw))]
		raw = raw[len(few)-len(bytes.TrimLeft(few, "\r\n")):]
	}
	if bytes.HasPrefix(raw, []byte("PRI")) {
		return append([]byte("\r\n"), raw...)
	}
	return raw
}
