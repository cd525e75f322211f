package server

import (
	"bytes"
	"net/http"
)

// request parses the next request. raw is all that has arrived of it. It returns nil if the request
// must go to net/http. net/http then gets raw, so nothing may have been read from the network
// beyond it: plain makes sure that the head is complete, and http.ReadRequest reads only the head.
func (c *quickConn) request(raw []byte) *http.Request {
	if r := c.again(raw); r != nil {
		return r
	}
	if c.last == nil {
		c.last = new(remembered)
	}
	fields := plain(raw)
	if fields == nil || !c.last.remember(fields) {
		return nil
	}
	r := c.parse()
	if r != nil {
		c.last.request = *r
	}
	return r
}

// parse reads a request from the buffer, or returns nil if it must go to net/http.
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

// plain returns the header fields of raw, with the blank line, if raw begins with the complete head
// of an HTTP/1.1 POST request to a path, in which every line is printable ASCII and ends with CR
// LF. Otherwise it returns nil. It is deliberately narrow: inputs on which HTTP parsers disagree
// (bare line feeds, folded lines, spaces before a colon, control characters) are the ones used for
// request smuggling, and net/http decides about them.
func plain(raw []byte) []byte {
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

// plainField returns the length of the first line, including its CR LF, if it is a header field: a
// name of letters, digits and hyphens, a colon, and printable ASCII. Otherwise it returns 0. The
// last of lines must end with CR LF, which also ends the loops.
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

// plainHost reports whether a host is not empty and has only characters of names, addresses and
// ports.
func plainHost(h string) bool {
	for i := range len(h) {
		b := h[i]
		if !('a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '.' || b == '-' || b == ':' || b == '[' || b == ']') {
			return false
		}
	}
	return h != ""
}
