// Package h2 is the protocol of an HTTP/2 connection that an event loop serves. It reads no
// descriptor and starts no goroutine: the loop passes what has arrived to Conn.Receive, and sends
// what Conn.Take returns.
//
// The package serves few requests itself, and passes all others to net/http. A request is plain if
// it is a POST or PUT with a body of known length, and nothing about its header fields is unusual.
// When the whole body of a plain request has arrived, the loop may serve it (Host.Serve). All other
// requests go through a tunnel (Tunnel), which is the connection of a server of
// golang.org/x/net/http2. To that server, a tunnel looks like the connection of a client with other
// numbers of streams. A Conn opens a tunnel only when it needs one.
//
// So the frames that concern the whole connection are the business of this package: settings, pings,
// the compression of header fields, the windows of the connection and its end. Within a stream, it
// decides as little as possible: net/http refuses most invalid requests.
package h2

import (
	"encoding/binary"
	"slices"

	"golang.org/x/net/http2/hpack"
)

// Host is the event loop's side of a connection. All methods but Wake are called while a method of
// Conn runs.
type Host interface {
	// Begin is called when the connection begins to be in use. It returns false if the connection
	// must be closed instead.
	Begin() bool

	// Body returns a buffer, with a length of 0, for a body of n bytes.
	Body(n int) []byte

	// Serve begins to answer a request. If it returns true, the host must later call Respond or
	// Abort of the stream. If it returns false, net/http serves the request.
	Serve(s *Stream) bool

	// Open passes a new tunnel to net/http. It must not block.
	Open(t *Tunnel)

	// Wake makes the loop call Conn.Pull soon. Any goroutine may call it.
	Wake()
}

// Limits are the limits of a connection.
type Limits struct {
	Window      int // bytes that a client may send before they are read, of a stream and of a connection
	Streams     int // maximum number of concurrent requests
	HeaderBytes int // maximum size of header fields, as HTTP/2 counts them
	Body        int // maximum size of a body that the loop serves
}

// Conn is an HTTP/2 connection. Only one goroutine may use it at a time.
type Conn struct {
	host   Host
	limits *Limits
	out    []byte // frames to be sent

	streams    map[uint32]*Stream
	newest     uint32 // highest number of a stream that the client has opened
	collecting int    // number of streams whose bodies have not arrived completely
	unsent     []*Stream
	spare      []*Stream // for reuse

	tunnels []*Tunnel
	current *Tunnel   // takes new streams; nil if there is none
	held    []*Stream // streams with frames of net/http that the client does not accept yet, see waiting

	// Windows. A window is the number of bytes of DATA frames that may still be sent.
	receive     int64    // what the client may send
	owed        int64    // what the client may send as soon as it is told
	send        int64    // what the client accepts
	firstWindow int64    // what the client accepts on a new stream
	frame       int      // maximum size of a frame that the client accepts
	acked       [2]int64 // firstWindow and frame when settings were last acknowledged

	work    int    // size of the header fields that Receive has decoded in this call
	behind  bool   // the last call of Receive has left complete frames
	opened  bool   // a window is larger than when push was called
	changed bool   // the client has sent settings since settle was called
	settled bool   // the client has sent its settings
	unacked int    // how many settings of the client the server has not acknowledged
	leaving bool   // the client has been told not to open streams any more
	failed  bool   // the connection is over, because of an error
	last    uint32 // when leaving: the last stream that the server takes

	decoder *hpack.Decoder
	encoder *encoder
	block   []byte // encoded header fields that have arrived so far, if the last frame did not end them
	blockOf frame  // the HEADERS frame that began them; the stream is 0 if there is none
	scratch []byte // for encoding header fields
	fields  []hpack.HeaderField
	size    int // size of fields
	known   *known
}

// New returns a connection whose client has sent the preface.
func New(h Host, l *Limits) *Conn {
	c := &Conn{
		host: h, limits: l, streams: make(map[uint32]*Stream), receive: firstWindow, send: firstWindow, firstWindow: firstWindow,
		frame: leastFrame, acked: [2]int64{firstWindow, leastFrame}, encoder: newEncoder(),
	}
	c.decoder = hpack.NewDecoder(tableSize, c.emit)
	c.decoder.SetMaxStringLength(l.HeaderBytes)
	c.out = appendHead(c.out, 4*6, kindSettings, 0, 0)
	c.out = appendSetting(c.out, settingFrame, MaxFrame)
	c.out = appendSetting(c.out, settingStreams, uint32(l.Streams))
	c.out = appendSetting(c.out, settingHeaderList, uint32(l.HeaderBytes))
	c.out = appendSetting(c.out, settingWindow, uint32(l.Window))
	more := l.grant()
	c.receive += more
	c.grant(more)
	return c
}

// Receive handles the frames at the start of b, and returns their size. An incomplete frame at the
// end of b is left for the next call. Complete frames are left too (see IsBehind) if there are more of
// them than a connection may handle at a time, or if it is full.
func (c *Conn) Receive(b []byte) (used int) {
	used = c.take(b)
	clear(c.fields)
	c.fields = trim(c.fields[:0], keptFields)
	if c.changed && !c.failed {
		c.settle()
	}
	if c.opened {
		c.push()
	}
	return used
}

func (c *Conn) take(b []byte) (used int) {
	c.work, c.behind = 0, false
	for len(b)-used >= frameHead && !c.failed {
		size := frameSize(b[used:])
		if size > frameHead+MaxFrame {
			c.fail(frameSizeError)
			break
		}
		if len(b)-used < size {
			return used
		}
		if c.behind = c.work > mostWork || c.IsFull(); c.behind {
			return used
		}
		c.handle(parse(b[used:]))
		used += size
	}
	if c.failed {
		return len(b)
	}
	return used
}

// mostWork limits how many bytes of header fields a connection decodes while others wait. A few bytes
// can stand for thousands, because they refer to earlier header fields.
const mostWork = 64 << 10

// IsBehind reports whether the last call of Receive has left complete frames.
func (c *Conn) IsBehind() bool { return c.behind }

// Take returns the frames to be sent. The result is valid until the next call of another method.
func (c *Conn) Take() []byte {
	b := c.out
	c.out = trim(b[:0], keptBytes)
	return b
}

// Limits for buffers that are kept for reuse. There may be many idle connections.
const (
	keptBytes  = 4 << 10
	keptFields = 100
)

// trim returns a buffer, or nil if it is too large to be kept.
func trim[T any](buffer []T, most int) []T {
	if cap(buffer) > most {
		return nil
	}
	return buffer
}

// IsIdle reports whether the connection has no request.
func (c *Conn) IsIdle() bool { return len(c.streams) == 0 }

// IsCollecting reports whether a plain request has arrived in part.
func (c *Conn) IsCollecting() bool { return c.collecting > 0 }

// IsWithinHeaders reports whether header fields have arrived in part.
func (c *Conn) IsWithinHeaders() bool { return c.blockOf.stream != 0 }

// IsBlocked reports whether there is something to send that the windows of the client do not allow.
func (c *Conn) IsBlocked() bool { return len(c.unsent) > 0 || len(c.held) > 0 }

// IsOver reports whether the connection must be closed when everything has been sent.
func (c *Conn) IsOver() bool { return c.failed || c.leaving && len(c.streams) == 0 }

// IsFull reports whether so much waits to be sent, or to be read by net/http, that nothing more must
// be received.
func (c *Conn) IsFull() bool {
	if len(c.out) > fullBytes || frameHead*c.unacked > fullBytes {
		return true
	}
	for _, t := range c.tunnels {
		if t.isFull() {
			return true
		}
	}
	return false
}

// fullBytes is the amount of data in one direction at which a connection no longer produces more.
const fullBytes = 64 << 10

// Patience is the number of intervals for which a response may wait (see GiveUp).
const Patience = 6

// GiveUp resets responses that have waited too long for a window. The host calls it from time to time
// while the connection is blocked, and says how many intervals of a certain length have passed since
// the last call. A complete response must be accepted within Patience intervals. Of one that net/http
// continues, for example to a subscriber, the client must accept something in that time.
func (c *Conn) GiveUp(intervals int) {
	for _, s := range slices.Concat(c.unsent, c.held) {
		if s.waited += intervals; s.waited > Patience {
			c.end(s.id, internalError)
		}
	}
	c.push()
}

// Newest returns the number of the newest stream.
func (c *Conn) Newest() uint32 { return c.newest }

// Leave tells the client not to open streams any more.
func (c *Conn) Leave() {
	if !c.leaving {
		c.leaving, c.last = true, c.newest
		c.goAway(noError)
	}
}

// Close ends the tunnels. The connection cannot be used any more.
func (c *Conn) Close() {
	c.failed = true
	for _, t := range c.tunnels {
		t.end()
	}
	c.tunnels, c.current, c.streams = nil, nil, nil
}

// fail ends the connection because of an error.
func (c *Conn) fail(code Code) {
	if !c.failed {
		c.failed = true
		c.goAway(code)
	}
}

func (c *Conn) goAway(code Code) {
	c.out = appendHead(c.out, 8, kindGoAway, 0, 0)
	c.out = binary.BigEndian.AppendUint32(c.out, c.newest)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
}

func (c *Conn) reset(stream uint32, code Code) {
	c.out = appendNumber(c.out, kindReset, stream, uint32(code))
}

// handle handles a frame.
func (c *Conn) handle(f frame) {
	if c.blockOf.stream != 0 && (f.kind != kindContinuation || f.stream != c.blockOf.stream) || !c.settled && (f.kind != kindSettings || f.has(flagAck)) {
		c.fail(protocolError)
		return
	}
	if c.leaving && f.stream > c.last && f.stream%2 == 1 && f.kind != kindHeaders && f.kind != kindContinuation {
		if f.kind == kindData {
			c.grant(int64(len(f.payload)))
		}
		return
	}
	switch f.kind {
	case kindData:
		c.data(f)
	case kindHeaders:
		c.headers(f)
	case kindPriority:
		switch {
		case f.stream == 0:
			c.fail(protocolError)
		case len(f.payload) != 5:
			c.fail(frameSizeError)
		case binary.BigEndian.Uint32(f.payload)&mostWindow == f.stream:
			c.end(f.stream, protocolError)
		}
	case kindReset:
		c.wasReset(f)
	case kindSettings:
		c.settings(f)
	case kindPush:
		c.fail(protocolError)
	case kindPing:
		switch {
		case f.stream != 0:
			c.fail(protocolError)
		case len(f.payload) != 8:
			c.fail(frameSizeError)
		case f.has(flagAck):
			for _, t := range c.tunnels {
				t.put(f)
			}
		default:
			f.flags = flagAck
			c.out = appendFrame(c.out, f)
		}
	case kindGoAway:
		switch {
		case f.stream != 0:
			c.fail(protocolError)
		case len(f.payload) < 8:
			c.fail(frameSizeError)
		default:
			c.Leave()
		}
	case kindWindow:
		c.window(f)
	case kindContinuation:
		c.continuation(f)
	}
}

// isUnused reports whether the client has not opened a stream with this number.
func (c *Conn) isUnused(stream uint32) bool { return stream > c.newest || stream%2 == 0 }

// wasReset handles the end of a stream that the client has given up.
func (c *Conn) wasReset(f frame) {
	switch s := c.streams[f.stream]; {
	case f.stream == 0 || c.isUnused(f.stream):
		c.fail(protocolError)
	case len(f.payload) != 4:
		c.fail(frameSizeError)
	case s == nil:
	case s.tunnel != nil:
		s.abandon(f.payload)
	default:
		s.drop()
	}
}

// end ends a stream because of an error of the client.
func (c *Conn) end(stream uint32, code Code) {
	c.reset(stream, code)
	switch s := c.streams[stream]; {
	case s == nil:
	case s.tunnel != nil:
		s.abandon(binary.BigEndian.AppendUint32(nil, uint32(code)))
	default:
		s.drop()
	}
}

// data handles a DATA frame.
func (c *Conn) data(f frame) {
	size := int64(len(f.payload))
	if c.isUnused(f.stream) {
		c.fail(protocolError)
		return
	}
	if c.receive -= size; c.receive < 0 {
		c.fail(flowControlError)
		return
	}
	c.owe(0)
	body, ok := f.unpad()
	if !ok {
		c.fail(protocolError)
		return
	}
	s := c.streams[f.stream]
	if s == nil || s.ended {
		c.owe(size)
		c.end(f.stream, streamClosed)
		return
	}
	if s.tunnel == nil && len(s.body)+len(body) > s.length {
		s.passOn()
	}
	s.ended = f.has(flagEndStream)
	if t := s.tunnel; t != nil {
		f.stream = s.inner
		t.data(f)
		if s.ended && s.answered {
			s.remove()
		}
		return
	}
	s.body = append(s.body, body...)
	if padding := size - int64(len(body)); padding > 0 {
		c.owe(padding)
		c.out = appendNumber(c.out, kindWindow, s.id, uint32(padding))
	}
	if s.ended {
		c.collecting--
		s.begin()
	}
}
