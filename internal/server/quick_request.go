package server

import (
	"bytes"
	"net/http"
)

// request parses a request, of which raw is what has come so far; nil when it is one for net/http. Nothing of raw may
// have been lost then, so the reader is not read beyond it.
func (c *quickConn) request(raw []byte) *http.Request {
	if r := c.again(raw); r != nil {
		return r
	}
	if !plain(raw) {
		return nil
	}
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
	if c.last == nil {
		c.last = new(remembered)
	}
	c.last.remember(raw, r)
	return r
}

var (
	post      = []byte("POST /")
	version11 = []byte(" HTTP/1.1\r\n")
	blankLine = []byte("\r\n\r\n")
)

// plain tells whether raw begins with a whole head of a POST by HTTP/1.1 to a path, in which every line is printable
// ASCII and ends with CR LF.
func plain(raw []byte) bool {
	if !bytes.HasPrefix(raw, post) {
		return false
	}
	end := bytes.Index(raw, blankLine)
	if end < 0 {
		return false
	}
	head := raw[:end+2]
	line := bytes.IndexByte(head, '\n')
	if !bytes.HasSuffix(head[:line+1], version11) {
		return false
	}
	for _, b := range head[:line-1] {
		if b < ' ' || b > '~' {
			return false
		}
	}
	for lines := head[line+1:]; len(lines) > 0; {
		n := plainField(lines)
		if n == 0 {
			return false
		}
		lines = lines[n:]
	}
	return true
}

// plainField is the length of the line that lines begins with, its CR LF included, if it is a header field: a name of letters,
// digits and hyphens, a colon, and printable ASCII; else 0. The last line ends with CR LF.
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

// nameBytes are the letters, the digits and the hyphen.
var nameBytes = func() (t [256]bool) {
	for b := range t {
		t[b] = 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '-'
	}
	return t
}()

// plainHost tells whether a host is there and has only the characters of names, addresses and ports.
func plainHost(h string) bool {
	for i := range len(h) {
		b := h[i]
		if !('a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '.' || b == '-' || b == ':' || b == '[' || b == ']') {
			return false
		}
	}
	return h != ""
}
