package h2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The loop serves a plain request, in the order in which handlers respond.
func TestPlainRequest(t *testing.T) {
	p := newPeer(t)
	p.post(1, "one")
	p.post(3, "three")
	first, second := p.next(), p.next()
	r := second.Request()
	if r.Method != "POST" || r.URL.Path != "/x" || r.Host != "a" || r.ContentLength != 5 || string(second.Body()) != "three" || r.Header.Get("Content-Length") != "5" {
		t.Errorf("the second request is %+v with body %q", r, second.Body())
	}
	p.respond(second, "3")
	p.expect("3 status 200", `3 data "3" end`)
	p.respond(first, "")
	p.expect("1 status 200 end")
	if p.tunnels > 0 || !p.c.IsIdle() {
		t.Errorf("%d tunnels, idle %v", p.tunnels, p.c.IsIdle())
	}
}

// A response waits until the client opens the windows.
func TestWindows(t *testing.T) {
	p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	p.post(1, "")
	p.respond(p.next(), strings.Repeat("x", 100_000))
	p.expect("1 status 200", `1 data "xxxxxxxxxx"`)
	p.silent()
	p.WriteWindowUpdate(1, 5)
	p.pass()
	p.expect(`1 data "xxxxx"`)
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 5}) // now the window of the stream is -5
	p.WriteWindowUpdate(1, 5)
	p.pass()
	p.silent()
	p.WriteWindowUpdate(1, 1)
	p.pass()
	p.expect(`1 data "x"`)
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	p.pass()
	p.expect("1 16384 bytes", "1 16384 bytes", "1 16384 bytes", "1 16367 bytes") // 65535 bytes of the connection
	p.silent()
	if !p.c.IsBlocked() || p.c.IsIdle() {
		t.Error("the connection is not blocked")
	}
	p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 50_000})
	p.WriteWindowUpdate(0, 1<<20)
	p.pass()
	p.expect("1 34465 bytes end")
	if p.c.IsBlocked() || !p.c.IsIdle() {
		t.Error("the connection is still blocked")
	}
}

// A request counts until its outcome is known, even if the client has reset it. So a client cannot have
// more requests in progress than streams.
func TestRapidReset(t *testing.T) {
	p := newPeer(t)
	for id := uint32(1); id < 20; id += 2 {
		p.headers(id, true, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/")
		p.WriteRSTStream(id, http2.ErrCodeCancel)
		p.pass()
		if id > 9 {
			p.expect(fmt.Sprintf("%d reset REFUSED_STREAM", id))
		}
	}
	for range 5 {
		p.respond(p.next(), "abc")
	}
	p.post(21, "abc")
	p.respond(p.next(), "abc")
	p.expect("21 status 200", `21 data "abc" end`)
	p.silent()
}

// The client gets back the window of everything that it has sent.
func TestReceiveWindow(t *testing.T) {
	p := newPeer(t)
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	for id := uint32(1); id < 100; id += 2 {
		p.begin(id, 10_000)
		switch id % 10 {
		case 1: // a plain request
			p.WriteDataPadded(id, true, make([]byte, 10_000), make([]byte, 200))
			p.pass()
			p.respond(p.next(), "")
		case 3: // net/http serves the request, which ends with trailers
			p.WriteData(id, false, make([]byte, 10_000))
			p.headers(id, true, "x-a", "b")
			p.pass()
		case 5: // the client gives up the request
			p.WriteData(id, false, make([]byte, 5000))
			p.WriteRSTStream(id, http2.ErrCodeCancel)
			p.WriteData(id, false, make([]byte, 5000))
			p.pass()
			p.expect(fmt.Sprintf("%d reset STREAM_CLOSED", id))
			continue
		case 7: // longer than announced
			p.WriteData(id, false, make([]byte, 9000))
			p.WriteData(id, true, make([]byte, 2000))
			p.pass()
		case 9: // slow
			p.WriteData(id, false, make([]byte, 5000))
			p.pass()
			p.c.Expire(id)
			p.WriteData(id, true, make([]byte, 5000))
			p.pass()
		}
		for got := ""; !strings.HasSuffix(got, " end") && !strings.Contains(got, "reset"); got = p.read() {
		}
	}
	for p.c.receive+p.c.owed < 100_000-5000 { // net/http keeps up to 4 KiB back
		select {
		case <-p.woken: // it may return the window of a request after the response
			p.c.Pull()
		case <-time.After(time.Minute):
			t.Fatalf("the window is %d and %d are owed, want 100000 altogether", p.c.receive, p.c.owed)
		}
	}
	if p.c.failed {
		t.Error("the connection failed")
	}
}

// A client that breaks the protocol is told so.
func TestProtocolErrors(t *testing.T) {
	for name, c := range map[string]struct {
		write func(p *peer)
		want  string
	}{
		"a frame that is too long":    {func(p *peer) { p.out.Write(appendHead(nil, MaxFrame+1, kindData, 0, 1)) }, "away FRAME_SIZE_ERROR after 0"},
		"settings of a stream":        {func(p *peer) { p.WriteRawFrame(http2.FrameSettings, 0, 1, nil) }, "away PROTOCOL_ERROR after 0"},
		"settings of a wrong size":    {func(p *peer) { p.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5)) }, "away FRAME_SIZE_ERROR after 0"},
		"too many settings":           {func(p *peer) { p.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 6*200)) }, "away PROTOCOL_ERROR after 0"},
		"a huge initial window":       {func(p *peer) { p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }, "away FLOW_CONTROL_ERROR after 0"},
		"a huge window":               {func(p *peer) { p.WriteWindowUpdate(0, mostWindow) }, "away FLOW_CONTROL_ERROR after 0"},
		"an empty update":             {func(p *peer) { p.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 4)) }, "away PROTOCOL_ERROR after 0"},
		"an update of an idle stream": {func(p *peer) { p.WriteWindowUpdate(1, 1) }, "away PROTOCOL_ERROR after 0"},
		"data of an idle stream":      {func(p *peer) { p.WriteData(1, true, nil) }, "away PROTOCOL_ERROR after 0"},
		"a reset of an idle stream":   {func(p *peer) { p.WriteRSTStream(1, 0) }, "away PROTOCOL_ERROR after 0"},
		"an even stream":              {func(p *peer) { p.begin(2, 0) }, "away PROTOCOL_ERROR after 0"},
		"a stream that goes back":     {func(p *peer) { p.begin(3, 0); p.begin(1, 0) }, "away PROTOCOL_ERROR after 3"},
		"a push":                      {func(p *peer) { p.WriteRawFrame(http2.FramePushPromise, 0, 1, make([]byte, 4)) }, "away PROTOCOL_ERROR after 0"},
		"a ping of a stream":          {func(p *peer) { p.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8)) }, "away PROTOCOL_ERROR after 0"},
		"a ping of a wrong size":      {func(p *peer) { p.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, 7)) }, "away FRAME_SIZE_ERROR after 0"},
		"padding that is too long":    {func(p *peer) { p.begin(1, 9); p.WriteRawFrame(http2.FrameData, 8, 1, []byte{3, 0, 0}) }, "away PROTOCOL_ERROR after 1"},
		"no padding at all":           {func(p *peer) { p.begin(1, 9); p.WriteRawFrame(http2.FrameData, 8, 1, nil) }, "away PROTOCOL_ERROR after 1"},
		"more than the window":        {func(p *peer) { p.begin(1, 9); p.refuses = true; flood(p) }, "away FLOW_CONTROL_ERROR after 1"},
		"wrong compression": {func(p *peer) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff}, EndHeaders: true})
		}, "away COMPRESSION_ERROR after 0"},
		"a frame among header fields": {func(p *peer) { p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}); p.WritePing(false, [8]byte{}) }, "away PROTOCOL_ERROR after 0"},
		"fields of another stream":    {func(p *peer) { p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}); p.WriteContinuation(3, true, nil) }, "away PROTOCOL_ERROR after 0"},
		"fields without a start":      {func(p *peer) { p.WriteContinuation(1, true, nil) }, "away PROTOCOL_ERROR after 0"},
		"endless fields": {func(p *peer) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1})
			for range 10 {
				p.WriteContinuation(1, false, make([]byte, 4000))
			}
		}, "away PROTOCOL_ERROR after 0"},
		"a stream that depends on itself": {func(p *peer) { p.WritePriority(1, http2.PriorityParam{StreamDep: 1}); p.WritePing(false, [8]byte{}) }, "1 reset PROTOCOL_ERROR"},
		"invalid fields":                  {func(p *peer) { p.headers(1, true, ":method", "POST", "A", "b") }, "1 reset PROTOCOL_ERROR"},
		"fields of the connection": {func(p *peer) {
			p.headers(1, true, ":method", "GET", ":path", "/", ":scheme", "http", "connection", "a")
		}, "1 status 400"},
		"a request after its end":     {func(p *peer) { p.post(1, ""); p.begin(1, 0) }, "1 reset STREAM_CLOSED"},
		"data after the end":          {func(p *peer) { p.post(1, ""); p.WriteData(1, true, nil) }, "1 reset STREAM_CLOSED"},
		"a huge window of a stream":   {func(p *peer) { p.post(1, ""); p.WriteWindowUpdate(1, mostWindow) }, "1 reset FLOW_CONTROL_ERROR"},
		"an empty update of a stream": {func(p *peer) { p.begin(1, 9); p.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 4)) }, "1 reset PROTOCOL_ERROR"},
		"header fields that are too large": {func(p *peer) {
			p.headers(1, true, ":method", "POST", ":scheme", "http", ":path", "/", "a", strings.Repeat("x", 4900), "b", strings.Repeat("x", 500))
		}, "1 status 431"},
		"unknown frames":        {func(p *peer) { p.WriteRawFrame(99, 0, 3, nil); p.WritePing(false, [8]byte{}) }, "ping true"},
		"the end of the client": {func(p *peer) { p.WriteGoAway(0, 0, nil) }, "away NO_ERROR after 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			p.pass()
			c.write(p)
			p.pass()
			if got := p.read(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if strings.HasPrefix(c.want, "away") != p.c.IsOver() && len(p.c.streams) == 0 {
				t.Errorf("over is %v", p.c.IsOver())
			}
		})
	}
}

// flood writes more than the window of the connection.
func flood(p *peer) {
	for range 7 {
		p.WriteData(1, false, make([]byte, 16_000))
	}
}

// The first frame must have the settings.
func TestFirstFrame(t *testing.T) {
	p := newPeer(t)
	p.out.Reset()
	p.WritePing(false, [8]byte{})
	p.pass()
	p.expect("away PROTOCOL_ERROR after 0")
}

// After the end was announced, requests in progress continue and new ones are ignored.
func TestLeave(t *testing.T) {
	p := newPeer(t)
	p.post(1, "abc")
	p.begin(3, 3)
	p.pass()
	p.c.Leave()
	p.c.Leave()
	p.WriteData(3, true, []byte("def"))
	p.post(5, "late")
	p.expect("away NO_ERROR after 3")
	if p.c.IsOver() {
		t.Error("the connection is over while it has requests")
	}
	p.respond(p.next(), "")
	p.respond(p.next(), "")
	p.expect("1 status 200 end", "3 status 200 end")
	p.silent()
	if !p.c.IsOver() || len(p.taken) > 0 {
		t.Errorf("over %v, %d requests", p.c.IsOver(), len(p.taken))
	}
}

// A handler that panics gets its request reset.
func TestAbort(t *testing.T) {
	p := newPeer(t)
	p.post(1, "abc")
	p.next().Abort()
	p.in.Write(p.c.Take())
	p.expect("1 reset INTERNAL_ERROR")
}

// Whatever a client sends, the connection sends only whole frames and never panics.
func FuzzReceive(f *testing.F) {
	for seed := range uint64(20) {
		p := &peer{}
		p.Framer = http2.NewFramer(&p.out, nil)
		p.encoder = hpack.NewEncoder(&p.block)
		p.WriteSettings()
		p.begin(1, int(seed))
		p.WriteData(1, seed%2 == 0, make([]byte, seed))
		p.headers(3, true, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", "x", strings.Repeat("y", int(seed)))
		p.WriteRSTStream(1, 8)
		p.WriteWindowUpdate(0, uint32(seed)+1)
		f.Add(p.out.Bytes(), seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		p := newPeer(t)
		p.out.Reset()
		r := rand.New(rand.NewPCG(seed, 0))
		sent := 0
		for held := []byte(nil); len(raw) > 0 || sent == 0; sent++ {
			n := r.IntN(len(raw) + 1)
			held = append(held, raw[:n]...)
			raw = raw[n:]
			held = bytes.Clone(held[p.c.Receive(held):])
			if len(p.taken) > 0 && r.IntN(2) == 0 {
				p.next().Respond(200+r.IntN(300), []byte("A: b\r\nC: d\r\n"), make([]byte, r.IntN(200)))
			}
			switch r.IntN(8) {
			case 0:
				p.c.Expire(p.c.Newest())
			case 1:
				p.c.GiveUp(1)
			case 2:
				p.c.Pull()
			case 3:
				p.c.Leave()
			}
			for b := p.c.Take(); len(b) > 0; b = b[frameSize(b):] {
				if len(b) < frameHead || len(b) < frameSize(b) {
					t.Fatalf("an incomplete frame: %q", b)
				}
				if f := parse(b); f.kind == kindReset && binary.BigEndian.Uint32(f.payload) == uint32(flowControlError) && f.stream == 0 {
					t.Fatalf("a reset of the connection: %q", b)
				}
			}
			if len(p.c.streams) > 5 {
				t.Fatalf("%d streams", len(p.c.streams))
			}
		}
	})
}
