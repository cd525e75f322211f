package server

import (
	"bytes"
	"net/http"
)

// nextRequest parses the next request of a connection. raw is the data that has arrived.
// nextRequest returns nil if the request must go to net/http. The caller then passes raw to
// net/http, so nextRequest must not read anything beyond raw from the network. It does not:
// plainHead makes sure that the head of the request is complete in raw, and http.ReadRequest reads
// only the head.
func (c *quickConn) nextRequest(raw []byte) *http.Request {
	if r := c.recall(raw); r != nil {
		return r
	}
	if c.last == nil {
		c.last = new(remembered)
	}
	fields := plainHead(raw)
	if fields == nil || !c.last.remember(fields) {
		return nil
	}
	r := c.parse()
	if r != nil {
		c.last.request = *r
	}
	return r
}

// parse reads the head of a request from the buffer. It returns nil if the request must go to
// net/http.
func (c *quickConn) parse() *http.Request {
	r, err := http.ReadRequest(c.in)
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
	return r
}

var (
	post      = []byte("POST /")
	version11 = []byte(" HTTP/1.1\r\n")
	blankLine = []byte("\r\n\r\n")
)

// plainHead checks that raw begins with the complete head of an HTTP/1.1 POST request to a path,
// and that every line of the head is printable ASCII and ends with CR LF. If so, it returns the
// header fields, with the blank line. Otherwise it returns nil. plainHead is strict on purpose.
// HTTP parsers disagree on bare line feeds, folded lines, spaces before a colon and control
// characters, and attackers use these for request smuggling. So only net/http decides about them.
func plainHead(raw []byte) []byte {
	if !bytes.HasPrefix(raw, post) {
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
// 0. The last line must end with CR LF; without it the loops would run past the end.
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
