package server

import (
	"bytes"
	"net/http"
)

// request parses a request, of which raw is what has come so far; nil when it is one for net/http. Nothing of raw may
// have been lost then, so the reader is not read beyond it.
func (c *quickConn) request(raw []byte) *http.Request {
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
	return plainFields(head[line+1:])
}

// plainFields tells whether lines are header fields: a name of letters, digits and hyphens, a colon, and printable ASCII.
func plainFields(lines []byte) bool {
	named := false
	for i, b := range lines {
		switch {
		case b == '\n':
			if !named || lines[i-1] != '\r' {
				return false
			}
			named = false
		case !named:
			if named = b == ':'; !named && !('a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '-') {
				return false
			}
			if named && (i == 0 || lines[i-1] == '\n') {
				return false
			}
		case b == '\r':
			if lines[i+1] != '\n' { // there is one: lines end with CR LF
				return false
			}
		case b < ' ' || b > '~':
			return false
		}
	}
	return true
}

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
