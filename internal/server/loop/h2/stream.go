package h2

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"net/url"
	"slices"

	"golang.org/x/net/http2/hpack"
)

// Stream is a request and its response.
type Stream struct {
	c    *Conn
	id   uint32
	more int64 // what the client accepts of the response, in addition to the first window of the connection

	ended    bool // the client has sent the whole request
	serving  bool // the loop serves the request
	dropped  bool // the client has given up the request, or the response can no longer be sent
	answered bool // the whole response has come from the tunnel
	waited   int  // for how many intervals the response has waited for a window, see GiveUp

	tunnel *Tunnel   // nil unless net/http serves the request
	inner  uint32    // number of the stream in the tunnel
	held   []waiting // what the client does not accept yet

	// The rest belongs to a plain request.
	known   *known
	path    string
	bare    bool // the request has no body
	length  int  // length of the body
	body    []byte
	charged int64  // what the client may send again when the body is not needed any more
	rest    []byte // what the client has not accepted of the response
	request http.Request
	url     url.URL
}

// Request returns a plain request. It is valid until the response is complete.
func (s *Stream) Request() *http.Request { return &s.request }

// Body returns the body of a plain request.
func (s *Stream) Body() []byte { return s.body }

// Memo returns a place for what a handler has found out from the header fields. Requests with the
// same memo may differ in the path and in Content-Length.
func (s *Stream) Memo() *any { return s.known.memo }

// open begins a stream. It returns nil if the connection cannot have another one.
func (c *Conn) open(id uint32) *Stream {
	if len(c.streams) >= c.limits.Streams {
		c.newest = id
		c.reset(id, refusedStream)
		return nil
	}
	if len(c.streams) == 0 && !c.host.Begin() {
		c.fail(noError)
		return nil
	}
	c.newest = id
	var s *Stream
	if n := len(c.spare); n > 0 {
		s = c.spare[n-1]
		c.spare = c.spare[:n-1]
	} else {
		s = new(Stream)
	}
	*s = Stream{c: c, id: id}
	c.streams[id] = s
	return s
}

// begin begins to answer a plain request, which has arrived.
func (s *Stream) begin() {
	if s.serving = len(s.body) == s.length && s.parse(); s.serving {
		s.charged = int64(s.length)
		if s.c.host.Serve(s) {
			return
		}
	}
	s.serving, s.charged = false, 0
	s.passOn()
}

// drop ends a stream that has no tunnel. If the loop serves it, the stream stays until the loop has
// its outcome, so that a client cannot have more requests in progress than streams.
func (s *Stream) drop() {
	c := s.c
	s.dropped = true
	switch {
	case len(s.rest) > 0:
		i := slices.Index(c.unsent, s)
		c.unsent = slices.Delete(c.unsent, i, i+1)
		s.finish()
	case !s.serving:
		c.collecting--
		c.owe(int64(len(s.body)))
		s.remove()
	}
}

// remove forgets a stream.
func (s *Stream) remove() {
	c := s.c
	s.dropped = true
	delete(c.streams, s.id)
	if s.tunnel != nil {
		delete(s.tunnel.streams, s.inner)
	}
	if len(c.streams) == 0 {
		c.rest()
	}
}

// abandon ends a stream that net/http serves. The parameter is the payload of a frame that says why.
func (s *Stream) abandon(why []byte) {
	s.tunnel.put(frame{kindReset, 0, s.inner, why})
	s.forget()
}

// forget removes a stream, and what the client does not accept of its response.
func (s *Stream) forget() {
	c := s.c
	if len(s.held) > 0 {
		i := slices.Index(c.held, s)
		c.held, s.held = slices.Delete(c.held, i, i+1), nil
	}
	s.remove()
}

// rest lets large buffers go while there is no request.
func (c *Conn) rest() {
	c.scratch = trim(c.scratch, keptBytes)
	for _, t := range c.tunnels {
		for _, b := range []*[]byte{&t.spare, &t.frame, &t.block, &t.encoded} {
			*b = trim(*b, keptBytes)
		}
		t.got = trim(t.got, keptFields)
		t.mu.Lock()
		if len(t.out) == 0 {
			t.out = trim(t.out, keptBytes)
		}
		t.mu.Unlock()
	}
}

// Abort ends the response because the handler has panicked. The stream is not used again, because the
// handler may still use the request.
func (s *Stream) Abort() {
	s.discharge()
	if !s.dropped && !s.c.failed {
		s.c.reset(s.id, internalError)
	}
	s.remove()
}

// discharge lets the client send as much again as the body of the request had, because the outcome is
// known.
func (s *Stream) discharge() {
	s.c.owe(s.charged)
	s.charged = 0
}

// finish forgets a stream whose request the loop has served.
func (s *Stream) finish() {
	c := s.c
	s.serving = false
	s.remove()
	if len(c.spare) < mostSpare {
		*s = Stream{}
		c.spare = append(c.spare, s)
	}
}

// mostSpare limits the number of streams that a connection keeps for reuse.
const mostSpare = 16

// Respond sends the whole response. The parameter lines has the header fields as in HTTP/1.1: lines
// that end with CR LF. Fields that HTTP/2 does not allow are left out, and so are those with control
// characters.
func (s *Stream) Respond(status int, lines, body []byte) {
	c := s.c
	s.discharge()
	if s.dropped || c.failed {
		s.finish()
		return
	}
	block := c.encoder.begin(c.scratch[:0])
	block = c.encoder.status(block, status)
	for len(lines) > 0 {
		end := bytes.IndexByte(lines, '\n')
		name, value, _ := bytes.Cut(lines[:end-1], colon)
		lines = lines[end+1:]
		value = bytes.TrimLeft(value, " ")
		if f := string(name); isAllowed(value) && f != "Connection" && f != "Keep-Alive" && f != "Proxy-Connection" && f != "Upgrade" {
			block = c.encoder.append(block, name, value, f == "Date" || f == "Content-Length", f == "Set-Cookie")
		}
	}
	_, most := c.accepts()
	c.out = appendFields(c.out, s.id, block, int(most), len(body) == 0)
	c.scratch = block[:0]
	if len(body) > 0 {
		s.rest = body
		if s.sendRest(); len(s.rest) > 0 {
			s.rest = bytes.Clone(s.rest)
			s.body, s.known, s.request, s.url = nil, nil, http.Request{}, url.URL{}
			c.unsent = append(c.unsent, s)
			return
		}
	}
	s.finish()
}

var colon = []byte(":")

// isAllowed reports whether a value has no control characters.
func isAllowed(value []byte) bool {
	for _, b := range value {
		if b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// sendRest sends as much of the rest of a response as the client accepts.
func (s *Stream) sendRest() {
	c := s.c
	window, frameSize := c.accepts()
	for len(s.rest) > 0 {
		n := int(min(int64(len(s.rest)), window+s.more, c.send, frameSize))
		if n <= 0 {
			return
		}
		flags := byte(0)
		if n == len(s.rest) {
			flags = flagEndStream
		}
		c.out = appendFrame(c.out, frame{kindData, flags, s.id, s.rest[:n]})
		s.rest = s.rest[n:]
		s.more, c.send = s.more-int64(n), c.send-int64(n)
	}
}

// push sends what has waited for a window.
func (c *Conn) push() {
	if c.opened = false; c.failed {
		return
	}
	n := 0
	for n < len(c.held) && c.held[n].sendHeld() {
		n++
	}
	c.held = slices.Delete(c.held, 0, n)
	left := c.unsent[:0]
	for _, s := range c.unsent {
		if s.sendRest(); len(s.rest) > 0 {
			left = append(left, s)
			continue
		}
		s.finish()
	}
	clear(c.unsent[len(left):])
	c.unsent = left
	for _, t := range c.tunnels {
		t.refill(c)
	}
}

// Expire passes plain requests to net/http whose bodies are still incomplete, up to a certain stream.
// It returns false if some are left because the connection is full.
func (c *Conn) Expire(last uint32) bool {
	for id, s := range c.streams {
		if id <= last && s.tunnel == nil && !s.ended {
			if c.IsFull() {
				return false
			}
			s.passOn()
		}
	}
	return true
}

// passOn passes a plain request to net/http.
func (s *Stream) passOn() {
	c := s.c
	if !s.ended {
		c.collecting--
	}
	fields := c.fields[:0]
	for _, f := range s.known.fields {
		switch f.Name {
		case ":path":
			f.Value = s.path
		case "content-length":
			f.Value = s.known.length
		}
		fields = append(fields, f)
	}
	c.fields = fields
	s.pass(s.bare)
	if len(s.body) > 0 || s.ended && !s.bare {
		flags := byte(0)
		if s.ended {
			flags = flagEndStream
		}
		s.tunnel.data(frame{kindData, flags, s.inner, s.body})
	}
	s.body, s.known = nil, nil
}

// pass passes a request with c.fields to net/http.
func (s *Stream) pass(ends bool) {
	c := s.c
	t := c.current
	if t == nil {
		t = newTunnel(c)
		c.tunnels, c.current = append(c.tunnels, t), t
		c.host.Open(t)
	}
	s.tunnel = t
	t.open(s, c.fields, ends)
	if s.more > 0 {
		t.put(frame{kindWindow, 0, s.inner, binary.BigEndian.AppendUint32(nil, uint32(s.more))})
	}
}

// known are header fields that a plain request had, and what follows from them. A connection usually
// sends the same fields with every request, so it keeps those of the last one.
type known struct {
	fields []hpack.HeaderField // as received
	method string
	scheme string
	host   string
	length string // value of Content-Length; empty if there is none
	header http.Header
	memo   *any
}

// parse sets the request of a stream.
func (s *Stream) parse() bool {
	k := s.known
	if isPlainPath(s.path) {
		s.url = url.URL{Path: s.path}
	} else {
		u, err := url.ParseRequestURI(s.path)
		if err != nil {
			return false
		}
		s.url = *u
	}
	s.request = http.Request{
		Method: k.method, URL: &s.url, Proto: "HTTP/2.0", ProtoMajor: 2, Header: k.header, ContentLength: int64(s.length), Host: k.host,
		RequestURI: s.path,
	}
	return true
}

// Scheme returns the scheme that a plain request names.
func (s *Stream) Scheme() string { return s.known.scheme }
