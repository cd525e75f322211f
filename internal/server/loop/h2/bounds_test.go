package h2

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// lonely is a host whose tunnels are not read. It answers plain requests with the status 401 and a body
// of 150 bytes.
type lonely struct{ tunnel *Tunnel }

func (*lonely) Begin() bool      { return true }
func (*lonely) Body(int) []byte  { return nil }
func (h *lonely) Open(t *Tunnel) { h.tunnel = t }
func (*lonely) Wake()            {}

func (*lonely) Serve(s *Stream) bool {
	s.Respond(401, []byte("Content-Type: application/json\r\nWww-Authenticate: Bearer\r\n"), make([]byte, 150))
	return true
}

var serverLimits = Limits{Window: 1 << 20, Streams: 1000, HeaderBytes: 33088, Body: 64 << 10}

// filled returns 64 KiB of frames that the function write produces, after the settings.
func filled(write func(f *http2.Framer, id uint32)) []byte {
	var out bytes.Buffer
	f := http2.NewFramer(&out, nil)
	f.WriteSettings()
	f.WriteWindowUpdate(0, 1<<30)
	for id := uint32(1); out.Len() < 64<<10; id += 2 {
		write(f, id)
	}
	return out.Bytes()
}

// A client repeats large header fields with a few bytes, and resets the requests. The connection handles
// only some of the frames at a time, and no more than net/http reads.
func TestRepeatedFields(t *testing.T) {
	h := new(lonely)
	c := New(h, &serverLimits)
	var block bytes.Buffer
	block.WriteString("\x82\x86\x84") // GET, http and /
	hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: "b", Value: strings.Repeat("a?[]{}", 700)[:4000]})
	again := []byte("\x82\x86\x84")
	for range 8 {
		again = append(again, 0x80|62, 0x0f, 36, 1, 'x') // the large field, and a short one that is not added to the table
	}
	in := filled(func(f *http2.Framer, id uint32) {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		f.WriteRSTStream(id, http2.ErrCodeCancel)
		block.Reset()
		block.Write(again)
	})
	for turns := 0; !c.IsFull(); turns++ {
		before := 0
		if h.tunnel != nil {
			before = len(h.tunnel.in)
		}
		in = in[c.Receive(in):]
		if n := len(h.tunnel.in) - before; n > 2*mostWork {
			t.Fatalf("%d bytes were passed on in one turn", n)
		}
		if c.failed || !c.IsBehind() || turns > 100 {
			t.Fatalf("after %d turns: failed %v, behind %v", turns, c.failed, c.IsBehind())
		}
	}
	if used := c.Receive(in); used > 0 || !c.IsBehind() {
		t.Errorf("a full connection has handled %d bytes", used)
	}
	if n := len(h.tunnel.in); n > mostUnread+2*mostWork {
		t.Errorf("%d bytes wait in the tunnel", n)
	}
}

// The connection handles no more requests than the client reads responses.
func TestOutputIsBounded(t *testing.T) {
	c := New(new(lonely), &serverLimits)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	in := filled(func(f *http2.Framer, id uint32) {
		block.Reset()
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/x"}} {
			encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	})
	for len(in) > 0 {
		in = in[c.Receive(in):]
		if n := len(c.Take()); n == 0 || n > fullBytes+1000 {
			t.Fatalf("%d bytes to send, and %d were not handled", n, len(in))
		}
	}
}

// A client opens a window byte by byte. The bytes that net/http sends do not pile up as frames.
func TestTinyWindows(t *testing.T) {
	const updates = 1000
	p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 4000)) })
	p.headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/")
	p.pass()
	p.expect("1 status 200")
	p.begin(3, 0)
	p.WriteData(3, true, nil)
	p.WriteWindowUpdate(3, 1<<20)
	p.pass()
	p.respond(p.next(), strings.Repeat("x", firstWindow)) // uses up the window of the connection
	s := p.c.streams[1]
	held := func() (n int) {
		for _, w := range s.held {
			n += len(w.frame.payload)
		}
		return n
	}
	for n := range updates {
		p.WriteWindowUpdate(1, 1)
		p.pass()
		for held() <= n {
			<-p.woken
			p.c.Pull()
		}
	}
	if len(s.held) != 1 || len(p.c.held) != 1 {
		t.Errorf("%d frames of %d streams wait", len(s.held), len(p.c.held))
	}
	p.in.Reset()
	p.WriteWindowUpdate(0, updates)
	p.pass()
	p.expect(fmt.Sprintf("1 %d bytes", updates))
}

// The bodies of requests in progress count as not received, so that they are bounded.
func TestBodiesInProgress(t *testing.T) {
	p := newPeer(t)
	p.c.limits = &Limits{Window: 100_000, Streams: 100, HeaderBytes: 5000, Body: 20_000}
	body := strings.Repeat("x", 10_000)
	post := func(id uint32) {
		p.post(id, body)
		p.in.Reset()
	}
	for i := range uint32(10) {
		post(2*i + 1)
	}
	for range 5 {
		p.respond(p.next(), "")
	}
	p.in.Reset()
	for i := range uint32(5) {
		post(2*i + 101)
	}
	if p.c.failed {
		t.Fatal("the client may not send more after the responses")
	}
	p.post(201, body)
	p.expect("away FLOW_CONTROL_ERROR after 201")
}

// A response that waits for a window does not keep the request, and is given up even if the client accepts
// it byte by byte.
func TestSlowResponse(t *testing.T) {
	p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	p.post(1, strings.Repeat("x", 10_000))
	s := p.next()
	p.respond(s, "response")
	if s.body != nil || s.known != nil || s.request.Header != nil {
		t.Error("the request is kept")
	}
	for range Patience {
		p.c.GiveUp(1)
		p.WriteWindowUpdate(1, 1)
		p.pass()
	}
	p.c.GiveUp(1)
	p.pass()
	p.expect("1 status 200", `1 data "r"`, `1 data "e"`, `1 data "s"`, `1 data "p"`, `1 data "o"`, `1 data "n"`, "1 reset INTERNAL_ERROR")
	if p.c.IsBlocked() || !p.c.IsIdle() {
		t.Error("the stream is not forgotten")
	}
}

// Of a response that net/http continues, the client must accept something from time to time. When the
// response is complete, its end must be accepted in time too.
func TestSlowTunnel(t *testing.T) {
	for _, complete := range []bool{false, true} {
		p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		more := make(chan struct{})
		p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Write(make([]byte, 1000))
			w.(http.Flusher).Flush()
			if !complete {
				<-more
			}
		})
		p.begin(1, 0)
		p.WriteData(1, true, nil)
		p.pass()
		p.respond(p.next(), strings.Repeat("x", firstWindow))
		p.in.Reset()
		p.headers(3, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/")
		p.pass()
		s := p.c.streams[3]
		for len(s.held) == 0 || complete && !s.isComplete() {
			<-p.woken
			p.c.Pull()
		}
		for range 2 * Patience {
			p.c.GiveUp(1)
			p.WriteWindowUpdate(0, 1)
			p.pass()
		}
		if s.dropped != complete {
			t.Errorf("complete %v: the response was given up: %v", complete, s.dropped)
		}
		for range Patience + 1 {
			p.c.GiveUp(1)
		}
		if !s.dropped || !p.c.IsIdle() {
			t.Errorf("complete %v: the response was not given up", complete)
		}
		close(more)
	}
}

// A path that is not allowed ends only its request, even if the other fields of the request are known.
func TestBadPath(t *testing.T) {
	p := newPeer(t)
	p.post(1, "x")
	p.respond(p.next(), "")
	p.expect("1 status 200 end")
	p.headers(3, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/x\x01", "content-length", "1")
	p.WriteData(3, true, []byte("x"))
	p.pass()
	p.expect("3 reset PROTOCOL_ERROR", "3 reset STREAM_CLOSED")
	p.silent()
}

// A stream that is reset because it depends on itself has no response.
func TestSelfDependency(t *testing.T) {
	p := newPeer(t)
	p.post(1, "x")
	p.WritePriority(1, http2.PriorityParam{StreamDep: 1})
	p.pass()
	p.respond(p.next(), "abc")
	p.expect("1 reset PROTOCOL_ERROR")
	p.silent()
}

// An idle connection keeps no large buffers.
func TestIdleBuffers(t *testing.T) {
	p := newPeerOf(t, 1<<20, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	p.c.limits = &serverLimits
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 400 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("y", 50))
		}
		w.Write(make([]byte, 1<<20))
	})
	fields := []string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"}
	for i := range 150 {
		fields = append(fields, fmt.Sprint("x-", i), "0123456789")
	}
	p.WriteWindowUpdate(0, 1<<30)
	p.headers(1, true, fields...)
	p.pass()
	for !p.c.IsIdle() {
		select {
		case <-p.woken:
			p.c.Pull()
			p.c.Take()
		case <-time.After(time.Minute):
			t.Fatal("the response is not complete")
		}
	}
	c, u := p.c, p.c.current
	u.spare = make([]byte, 0, 2*keptBytes) // Pull makes it the buffer for what net/http writes next
	c.Pull()
	for i, n := range []int{cap(c.out), cap(c.scratch), cap(c.block), cap(u.spare) + cap(u.out), cap(u.frame), cap(u.block), cap(u.encoded), cap(c.fields), cap(u.got)} {
		if most := []int{keptBytes, keptFields}[i/7]; n > most {
			t.Errorf("buffer %d has a capacity of %d, want at most %d", i, n, most)
		}
	}
}

// Requests whose bodies are late pass through the tunnel no faster than net/http reads.
func TestExpireIsBounded(t *testing.T) {
	h := new(lonely)
	c := New(h, &serverLimits)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	in := filled(func(f *http2.Framer, id uint32) {
		block.Reset()
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/x"}, {"content-length", "1"}, {"x-long", strings.Repeat("y", 3000)}} {
			encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		if id < 2000 {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		}
		f.WritePing(false, [8]byte{})
	})
	for c.Newest() < 1999 {
		in = in[c.Receive(in):]
		c.Take()
	}
	if c.Expire(c.Newest()) {
		t.Error("all requests were passed on")
	}
	if n := len(h.tunnel.in); n > mostUnread+2*mostPlain {
		t.Errorf("%d bytes wait in the tunnel", n)
	}
}

// A response that the client gives up while it waits for a window leaves nothing behind.
func TestResetWhileHeld(t *testing.T) {
	p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 10)) })
	p.post(1, "")
	p.respond(p.next(), strings.Repeat("x", firstWindow)) // uses up the window of the connection
	for id := uint32(3); id < 20; id += 2 {
		p.headers(id, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/")
		p.pass()
		for s := p.c.streams[id]; len(s.held) == 0; p.c.Pull() {
			<-p.woken
		}
		if id > 3 {
			p.WriteRSTStream(id, http2.ErrCodeCancel)
			p.pass()
		}
	}
	if len(p.c.held) != 1 {
		t.Errorf("%d streams wait, want 1", len(p.c.held))
	}
}
