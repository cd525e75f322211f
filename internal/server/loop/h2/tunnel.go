package h2

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
)

// Tunnel is the connection through which net/http gets the requests that the loop does not serve. It
// implements net.Conn, except for the addresses. The preface of the client is not part of it.
//
// Both sides use other numbers of streams, because requests may enter the tunnel in another order
// than the client has sent them. And both compress header fields on their own.
type Tunnel struct {
	c    *Conn // only the loop uses it
	host Host

	mu        sync.Mutex
	changed   sync.Cond // there is something to read, room to write, or the tunnel has ended
	in        []byte    // frames for net/http
	read      int       // number of bytes of in that net/http has read
	out       []byte    // what net/http has written
	full      bool      // in was too long, and the loop waits until it is not
	woken     bool      // Host.Wake was called, and Conn.Pull was not
	ended     bool      // the connection was closed
	abandoned bool      // net/http has closed the tunnel

	// Only the loop uses these fields.
	streams map[uint32]*Stream
	opened  uint32 // number of streams so far
	frame   []byte // the start of an incomplete frame
	spare   []byte // for reuse
	send    int64  // what net/http may send
	unacked bool   // net/http has not acknowledged the last settings
	stale   bool   // the client has sent others meanwhile
	leaving bool   // net/http takes no more streams
	owed    int64  // number of bytes of DATA frames for which net/http has not granted others
	grants  int64  // the first updates of the window of the connection, which the client has already got
	block   []byte // encoded header fields that have arrived so far, if the last frame did not end them
	blockOf frame  // the HEADERS frame that began them
	got     []hpack.HeaderField
	encoded []byte // for encoding header fields
	decoder *hpack.Decoder
}

// waiting is a frame that net/http has written and the client does not accept yet. This can happen
// because the loop sends responses too, and net/http does not know how much they use of the window.
// A DATA frame may stand for several.
type waiting struct {
	frame  frame
	fields []hpack.HeaderField // of a HEADERS frame
}

func newTunnel(c *Conn) *Tunnel {
	t := &Tunnel{c: c, host: c.host, streams: make(map[uint32]*Stream), send: firstWindow, grants: c.limits.grant()}
	t.changed.L = &t.mu
	t.decoder = hpack.NewDecoder(tableSize, func(f hpack.HeaderField) { t.got = append(t.got, f) })
	t.settings()
	return t
}

// Read is called by net/http.
func (t *Tunnel) Read(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.unread() == 0 {
		if t.ended || t.abandoned {
			return 0, io.EOF
		}
		t.changed.Wait()
	}
	n := copy(b, t.in[t.read:])
	if t.read += n; t.unread() == 0 {
		t.in, t.read = trim(t.in[:0], keptBytes), 0
	}
	if t.full && t.unread() < mostUnread/2 {
		t.full = false
		t.wake()
	}
	return n, nil
}

func (t *Tunnel) unread() int { return len(t.in) - t.read }

// mostUnread is the number of bytes at which the loop waits until net/http has read some of them.
const mostUnread = 256 << 10

// Write is called by net/http.
func (t *Tunnel) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.out) > fullBytes && !t.ended && !t.abandoned {
		t.changed.Wait()
	}
	if t.ended || t.abandoned {
		return 0, net.ErrClosed
	}
	t.out = append(t.out, b...)
	t.wake()
	return len(b), nil
}

// Close is called by net/http.
func (t *Tunnel) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.abandoned = true
	t.changed.Broadcast()
	t.wake()
	return nil
}

func (t *Tunnel) wake() {
	if !t.woken && !t.ended {
		t.woken = true
		t.host.Wake()
	}
}

// SetDeadline and the next two methods have no effect. The loop closes a connection whose client does
// not accept what was sent.
func (t *Tunnel) SetDeadline(time.Time) error      { return nil }
func (t *Tunnel) SetReadDeadline(time.Time) error  { return nil }
func (t *Tunnel) SetWriteDeadline(time.Time) error { return nil }

// end closes the tunnel from the side of the loop.
func (t *Tunnel) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.in, t.read, t.out = true, nil, 0, nil
	t.changed.Broadcast()
}

// isFull reports whether net/http has to read before more is put into the tunnel.
func (t *Tunnel) isFull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.full = t.full || t.unread() > mostUnread
	return t.full
}

// put passes a frame to net/http.
func (t *Tunnel) put(f frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && !t.abandoned {
		if t.read > mostUnread {
			t.in, t.read = t.in[:copy(t.in, t.in[t.read:])], 0
		}
		t.in = appendFrame(t.in, f)
		t.changed.Broadcast()
	}
}

// data passes a DATA frame to net/http.
func (t *Tunnel) data(f frame) {
	t.owed += int64(len(f.payload))
	t.put(f)
}

// settings passes the settings of the client to net/http. It does so only when net/http has
// acknowledged the previous ones, because net/http may acknowledge several at once.
func (t *Tunnel) settings() {
	if t.stale = t.unacked; t.stale {
		return
	}
	t.unacked = true
	b := appendSetting(nil, settingPush, 0)
	b = appendSetting(b, settingWindow, uint32(t.c.firstWindow))
	t.put(frame{kindSettings, 0, 0, appendSetting(b, settingFrame, uint32(t.c.frame))})
}

// open passes the header fields of a new request to net/http.
func (t *Tunnel) open(s *Stream, fields []hpack.HeaderField, ends bool) {
	s.inner = 2*t.opened + 1
	t.opened++
	t.streams[s.inner] = s
	t.fields(s.inner, fields, ends)
}

// fields passes header fields to net/http. They are not compressed: compressing what the client can
// repeat with a few bytes would take much more time than the client needs.
func (t *Tunnel) fields(stream uint32, fields []hpack.HeaderField, ends bool) {
	b := t.encoded[:0]
	for i := range fields {
		f := &fields[i]
		b = append(b, 0) // a field that is not in the table, and is not added to it
		b = append(appendInt(b, 0, 7, len(f.Name)), f.Name...)
		b = append(appendInt(b, 0, 7, len(f.Value)), f.Value...)
	}
	flags := byte(flagEndHeaders)
	if ends {
		flags |= flagEndStream
	}
	t.put(frame{kindHeaders, flags, stream, b})
	t.encoded = b[:0]
}

// refill lets net/http send more if the client accepts more.
func (t *Tunnel) refill(c *Conn) {
	if more := min(c.send, mostTunnel) - t.send; more > 0 && t.send < mostTunnel/2 {
		t.send += more
		t.put(frame{kindWindow, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(more))})
	}
}

// mostTunnel limits what net/http may send before the client has accepted it, besides what TCP holds.
const mostTunnel = 128 << 10

// take returns what net/http has written, and whether it has closed the tunnel.
func (t *Tunnel) take() (b []byte, abandoned bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b = t.out
	t.out, t.spare, t.woken = t.spare[:0], nil, false
	t.changed.Broadcast()
	return b, t.abandoned
}

// Pull takes over what net/http has written.
func (c *Conn) Pull() {
	for i := 0; i < len(c.tunnels) && !c.failed; i++ {
		t := c.tunnels[i]
		raw, abandoned := t.take()
		b := raw
		if len(t.frame) > 0 {
			t.frame = append(t.frame, raw...)
			b = t.frame
		}
		for len(b) >= frameHead && len(b) >= frameSize(b) && !c.failed {
			n := frameSize(b)
			t.from(parse(b[:n]))
			b = b[n:]
		}
		t.frame = append(t.frame[:0], b...)
		if cap(raw) <= fullBytes {
			t.spare = raw[:0]
		}
		t.refill(c)
		if abandoned && !c.failed {
			t.abandon()
			i--
		}
	}
	if c.opened {
		c.push()
	}
	if len(c.streams) == 0 {
		c.rest()
	}
}

// abandon is called when net/http has closed a tunnel.
func (t *Tunnel) abandon() {
	c := t.c
	if !t.leaving { // the client does not answer pings
		c.failed = true
		return
	}
	c.owe(t.owed)
	for _, s := range t.streams {
		c.reset(s.id, internalError)
		s.forget()
	}
	left := c.tunnels[:0]
	for _, u := range c.tunnels {
		if u != t {
			left = append(left, u)
		}
	}
	clear(c.tunnels[len(left):])
	if c.tunnels = left; c.current == t {
		c.current = nil
	}
	c.acknowledge()
}

// from handles a frame of net/http.
func (t *Tunnel) from(f frame) {
	c := t.c
	switch f.kind {
	case kindSettings:
		if !f.has(flagAck) {
			t.put(frame{kindSettings, flagAck, 0, nil})
			return
		}
		if t.unacked = false; t.stale {
			t.settings()
		}
		c.acknowledge()
	case kindPing:
		c.out = appendFrame(c.out, f)
	case kindWindow:
		n := int64(binary.BigEndian.Uint32(f.payload))
		if f.stream != 0 {
			if s := t.streams[f.stream]; s != nil {
				c.out = appendNumber(c.out, kindWindow, s.id, uint32(n))
			}
			return
		}
		granted := min(n, max(t.grants, 0))
		n = min(n, granted+max(t.owed, 0)) // net/http may have kept back a part of its first window
		t.grants -= granted
		c.receive += n - granted
		t.owed -= n - granted
		c.grant(n - granted)
	case kindGoAway:
		t.away(f)
	case kindData:
		t.send -= int64(len(f.payload))
		t.streams[f.stream].deliver(waiting{frame: f})
	case kindReset:
		s := t.streams[f.stream]
		switch {
		case s == nil:
		case !s.isComplete():
			c.reset(s.id, Code(binary.BigEndian.Uint32(f.payload)))
			s.forget()
		case s.held[len(s.held)-1].frame.kind != kindReset: // one is enough
			s.deliver(waiting{frame: f})
		}
	case kindHeaders:
		t.blockOf, t.block = f, append(t.block[:0], f.payload...)
		t.blockOf.payload = nil
		t.decode(f)
	case kindContinuation:
		t.block = append(t.block, f.payload...)
		t.decode(f)
	}
}

// decode decodes header fields of net/http, if the frame f ends them.
func (t *Tunnel) decode(f frame) {
	c := t.c
	if !f.has(flagEndHeaders) {
		return
	}
	t.got = t.got[:0]
	_, err := t.decoder.Write(t.block)
	if err == nil {
		err = t.decoder.Close()
	}
	if err != nil { // never happens
		c.fail(internalError)
		return
	}
	f = t.blockOf
	t.streams[f.stream].deliver(waiting{frame: f, fields: t.got})
}

// away is called when net/http takes no more streams.
func (t *Tunnel) away(f frame) {
	c := t.c
	if code := Code(binary.BigEndian.Uint32(f.payload[4:])); code != noError {
		c.fail(code)
		return
	}
	if t.leaving = true; c.current == t {
		c.current = nil
	}
	last := binary.BigEndian.Uint32(f.payload)
	for inner, s := range t.streams {
		if inner > last {
			c.reset(s.id, refusedStream)
			s.forget()
		}
	}
	if len(t.streams) > 0 { // not because the tunnel was idle: a handler wants the connection to end
		c.Leave()
	}
}

// isComplete reports whether the frames that wait include the end of the response.
func (s *Stream) isComplete() bool {
	n := len(s.held)
	return n > 0 && (s.held[n-1].frame.kind == kindReset || s.held[n-1].frame.has(flagEndStream))
}

// deliver sends a frame of net/http to the client, or lets it wait. The stream is nil if the client has
// given up the request.
func (s *Stream) deliver(w waiting) {
	if s == nil || len(s.held) == 0 && s.transmit(&w) {
		return
	}
	f := &w.frame
	n := len(s.held)
	if n > 0 && f.kind == kindData && s.held[n-1].frame.kind == kindData {
		last := &s.held[n-1].frame
		last.payload, last.flags = append(last.payload, f.payload...), last.flags|f.flags
		return
	}
	f.payload, w.fields = bytes.Clone(f.payload), slices.Clone(w.fields)
	if s.held = append(s.held, w); n == 0 {
		s.c.held = append(s.c.held, s)
		s.waited = 0
	}
}

// transmit sends a frame of net/http, or a part of it. It returns false if there is more to send.
func (s *Stream) transmit(w *waiting) bool {
	c, f := s.c, &w.frame
	ends := f.has(flagEndStream)
	_, most := c.accepts()
	switch f.kind {
	case kindReset:
		c.reset(s.id, Code(binary.BigEndian.Uint32(f.payload)))
		s.remove()
		return true
	case kindHeaders:
		block := c.encoder.begin(c.scratch[:0])
		for i := range w.fields {
			h := &w.fields[i]
			block = c.encoder.append(block, []byte(h.Name), []byte(h.Value), h.Name == "date" || h.Name == "content-length", h.Sensitive)
		}
		c.out = appendFields(c.out, s.id, block, int(most), ends)
		c.scratch = block[:0]
	case kindData:
		for first := true; first || len(f.payload) > 0; first = false {
			n := int(min(int64(len(f.payload)), c.send, most))
			if n <= 0 && len(f.payload) > 0 {
				return false
			}
			flags := byte(0)
			if ends && n == len(f.payload) {
				flags = flagEndStream
			}
			c.out = appendFrame(c.out, frame{kindData, flags, s.id, f.payload[:n]})
			f.payload = f.payload[n:]
			c.send -= int64(n)
			if !s.isComplete() {
				s.waited = 0
			}
		}
	}
	if ends {
		if s.answered = true; s.ended {
			s.remove()
		}
	}
	return true
}

// sendHeld sends the frames of net/http that wait. It returns false if there are more.
func (s *Stream) sendHeld() bool {
	for len(s.held) > 0 && !s.dropped {
		if !s.transmit(&s.held[0]) {
			return false
		}
		s.held = s.held[1:]
	}
	s.held = nil
	return true
}
