package h2

import (
	"encoding/binary"
	"maps"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// headers handles a HEADERS frame.
func (c *Conn) headers(f frame) {
	block, ok := f.unpad()
	if !ok || f.stream%2 == 0 {
		c.fail(protocolError)
		return
	}
	if f.has(flagPriority) {
		if len(block) < 5 {
			c.fail(frameSizeError)
			return
		}
		f.payload = block[:4] // the stream that this one depends on
		block = block[5:]
	} else {
		f.payload = nil
	}
	if !f.has(flagEndHeaders) {
		c.block, c.blockOf = append(c.block[:0], block...), f
		if f.payload != nil {
			c.blockOf.payload = []byte(string(f.payload))
		}
		return
	}
	c.request(f, block)
}

// continuation handles a frame with more header fields.
func (c *Conn) continuation(f frame) {
	if c.blockOf.stream == 0 || len(c.block)+len(f.payload) > 4*c.limits.HeaderBytes {
		c.fail(protocolError)
		return
	}
	if c.block = append(c.block, f.payload...); f.has(flagEndHeaders) {
		of := c.blockOf
		c.blockOf = frame{}
		c.request(of, c.block)
		c.block = trim(c.block[:0], keptBytes)
	}
}

// emit receives a header field from the decoder. Of header fields that are too large, it keeps just
// enough for net/http to see that they are.
func (c *Conn) emit(f hpack.HeaderField) {
	if c.size <= c.limits.HeaderBytes {
		c.fields = append(c.fields, f)
		c.size += int(f.Size())
	}
}

// request handles the header fields at the start of a request, or at its end. The payload of f is the
// stream that it depends on, if f has a priority.
func (c *Conn) request(f frame, block []byte) {
	clear(c.fields)
	c.fields, c.size = c.fields[:0], 0
	if _, err := c.decoder.Write(block); err != nil {
		c.fail(compressionError)
		return
	}
	if err := c.decoder.Close(); err != nil {
		c.fail(compressionError)
		return
	}
	c.work += c.size
	ends := f.has(flagEndStream)
	s := c.streams[f.stream]
	switch {
	case s != nil && s.ended:
		c.end(f.stream, streamClosed)
		return
	case s != nil:
		s.trailers(ends)
		return
	case c.leaving && f.stream > c.last:
		return
	case f.stream <= c.newest:
		c.fail(protocolError)
		return
	}
	if f.payload != nil && binary.BigEndian.Uint32(f.payload)&mostWindow == f.stream {
		c.newest = f.stream
		c.reset(f.stream, protocolError)
		return
	}
	if s = c.open(f.stream); s == nil {
		return
	}
	s.ended = ends
	switch n, ok := c.plain(s); {
	case !ok && !isValid(c.fields):
		c.reset(f.stream, protocolError)
		s.remove()
	case !ok || !ends && s.known.length == "" || n > c.limits.Body:
		s.known = nil
		s.pass(ends)
	case ends:
		s.length, s.bare = n, true
		s.begin()
	default:
		s.length, s.body = n, c.host.Body(n)
		c.collecting++
	}
}

// trailers handles header fields at the end of a request.
func (s *Stream) trailers(ends bool) {
	c := s.c
	if s.tunnel == nil {
		fields := c.fields
		c.fields = nil
		s.passOn()
		c.fields = fields
	}
	s.ended = ends
	s.tunnel.fields(s.inner, c.fields, ends)
	if ends && s.answered {
		s.remove()
	}
}

// mostPlain limits the size of the header fields of a plain request.
const mostPlain = 4 << 10

// plain sets what is known about a request if its header fields, c.fields, are plain. It returns the
// length of the body.
func (c *Conn) plain(s *Stream) (length int, ok bool) {
	if c.size > mostPlain {
		return 0, false
	}
	k, text := c.known, ""
	if k != nil {
		if s.path, text, ok = k.match(c.fields); !ok {
			k = nil
		}
	}
	switch {
	case k == nil:
		if k, s.path = learn(c.fields); k == nil {
			return 0, false
		}
		c.known = k
	case text != k.length: // requests in progress share the header, so it must not change
		of := *k
		of.header, of.length = maps.Clone(k.header), text
		of.header["Content-Length"] = []string{text}
		k = &of
		c.known = k
	}
	if k.length != "" {
		if length, ok = number(k.length); !ok {
			return 0, false
		}
	}
	if s.path == "" || s.path[0] != '/' || !isPlainValue(s.path) {
		return 0, false
	}
	s.known = k
	return length, true
}

// match reports whether header fields are the known ones, except that the path and the value of
// Content-Length may differ. It returns these two.
func (k *known) match(fields []hpack.HeaderField) (path, length string, ok bool) {
	if len(fields) != len(k.fields) {
		return "", "", false
	}
	for i := range fields {
		f, of := &fields[i], &k.fields[i]
		switch {
		case f.Name != of.Name:
			return "", "", false
		case f.Name == ":path":
			path = f.Value
		case f.Name == "content-length":
			length = f.Value
		case f.Value != of.Value:
			return "", "", false
		}
	}
	return path, length, true
}

// learn returns what follows from header fields, and the path. It returns nil if they are not plain.
func learn(fields []hpack.HeaderField) (*known, string) {
	if len(fields) > mostFields {
		return nil, ""
	}
	k := &known{fields: slices.Clone(fields), header: make(http.Header, len(fields)), memo: new(any)}
	path, regular := "", false
	for _, f := range fields {
		var to *string
		switch f.Name {
		case ":method":
			to = &k.method
		case ":scheme":
			to = &k.scheme
		case ":authority":
			to = &k.host
		case ":path":
			to = &path
		case "content-length":
			if k.header["Content-Length"] != nil {
				return nil, ""
			}
			k.length, regular = f.Value, true
		case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "te", "expect", "trailer", "host", "cookie", "http2-settings":
			return nil, ""
		default:
			regular = true
		}
		if to != nil {
			if regular || *to != "" || f.Value == "" {
				return nil, ""
			}
			*to = f.Value
		} else if !isPlainName(f.Name) {
			return nil, ""
		}
		if !isPlainValue(f.Value) {
			return nil, ""
		}
		if to == nil {
			name := http.CanonicalHeaderKey(f.Name)
			k.header[name] = append(k.header[name], f.Value)
		}
	}
	if k.method != "POST" && k.method != "PUT" || k.scheme != "http" && k.scheme != "https" || !isPlainHost(k.host) || path == "" {
		return nil, ""
	}
	return k, path
}

// mostFields limits the number of header fields that a connection remembers.
const mostFields = 64

// isValid reports whether net/http accepts the form of header fields. It resets a request with others
// too, but then it takes the body for that of a request that has not begun, and closes the connection.
func isValid(fields []hpack.HeaderField) bool {
	regular := 0
	for regular < len(fields) && fields[regular].IsPseudo() {
		regular++
	}
	for i, f := range fields {
		switch {
		case !httpguts.ValidHeaderFieldValue(f.Value), i >= regular && (f.Name == "" || !isToken(f.Name)):
			return false
		case i >= regular:
		case !slices.Contains(pseudo, f.Name), slices.ContainsFunc(fields[:i], func(g hpack.HeaderField) bool { return g.Name == f.Name }):
			return false
		}
	}
	return true
}

var pseudo = []string{":method", ":path", ":scheme", ":authority", ":protocol", ":status"}

// isToken reports whether s can be the name of a header field of HTTP/2.
func isToken(s string) bool {
	for _, r := range s {
		if !httpguts.IsTokenRune(r) || 'A' <= r && r <= 'Z' {
			return false
		}
	}
	return true
}

// number returns the value of a string of digits. It returns false if s is something else, or too
// long for the length of a plain body.
func number(s string) (n int, ok bool) {
	if s == "" || len(s) > 9 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int(s[i]-'0')
	}
	return n, true
}

// isPlainName reports whether the name of a header field has only small letters, digits and hyphens.
func isPlainName(s string) bool {
	for i := range len(s) {
		if b := s[i]; !('a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '-') {
			return false
		}
	}
	return s != ""
}

// isPlainValue reports whether a value is printable ASCII without spaces around it.
func isPlainValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' '
}

// isPlainHost reports whether s has only characters that occur in host names, IP addresses and ports.
func isPlainHost(s string) bool {
	for i := range len(s) {
		if b := s[i]; !('a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '.' || b == '-' || b == ':' || b == '[' || b == ']') {
			return false
		}
	}
	return s != ""
}

// isPlainPath reports whether a path can be used as URL.Path without decoding.
func isPlainPath(s string) bool {
	if len(s) > 1 && s[1] == '/' {
		return false
	}
	for i := range len(s) {
		if b := s[i]; !('a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '-' || b == '/' || b == '_' || b == '.' || b == '~') {
			return false
		}
	}
	return true
}
