package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// keen is a handler that takes over requests from event loops, as the API does with publishes,
// except those whose path contains "declined". It completes those to /now at once.
type keen struct{ http.HandlerFunc }

func (h keen) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	switch {
	case strings.Contains(r.URL.Path, "declined"):
		return false, false
	case r.URL.Path == "/now":
		h.HandlerFunc(w, r)
		return true, true
	}
	go func() {
		h.HandlerFunc(w, r)
		w.(interface{ ReuseBody() }).ReuseBody()
		w.(interface{ Ready(interface{ Finish() }) }).Ready(finisher(func() {}))
	}()
	return true, false
}

// twins are two servers with the same handler: one with event loops, and one with net/http alone.
type twins struct {
	looped, plain *Server
	count         atomic.Int64 // number of responses that a loop gave
}

func newTwins(t testing.TB) *twins {
	var p twins
	h := keen{func(w http.ResponseWriter, r *http.Request) {
		if inLoop(w) {
			p.count.Add(1)
		}
		mirror(w, r)
	}}
	for i, s := range []**Server{&p.looped, &p.plain} {
		var err error
		if *s, err = Listen(Options{HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Logger: quiet, NetHTTPOnly: i == 1 || netHTTPOnly}); err != nil {
			t.Fatal(err)
		}
		(*s).Serve(h, secured())
		t.Cleanup(func() { (*s).Shutdown(context.Background()) })
	}
	return &p
}

// talk is an HTTP/2 connection on which a test writes and reads frames.
type talk struct {
	net.Conn
	*http2.Framer
	t       testing.TB
	out     bytes.Buffer // frames that were written but not sent
	block   bytes.Buffer
	encoder *hpack.Encoder
	scheme  string
	next    uint32      // number of the next stream
	later   chan []byte // sends what outcomes writes; nil if it writes itself
}

// dial2 opens an HTTP/2 connection. It queues the preface and the settings.
func dial2(t testing.TB, s *Server, secure bool, settings ...http2.Setting) *talk {
	t.Helper()
	k := &talk{t: t, scheme: "http", next: 1}
	if secure {
		c, err := tls.Dial("tcp", s.HTTPS(), &tls.Config{RootCAs: trust, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		k.Conn, k.scheme = c, "https"
	} else {
		k.Conn = reach(t, s.HTTP(), false)
	}
	k.SetDeadline(time.Now().Add(time.Minute))
	k.Framer = http2.NewFramer(&k.out, k.Conn)
	k.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	k.encoder = hpack.NewEncoder(&k.block)
	k.out.WriteString(http2.ClientPreface)
	k.WriteSettings(settings...)
	return k
}

// headers queues the start of a request. Fields are name and value in turn.
func (k *talk) headers(ends bool, fields ...string) (stream uint32) {
	stream = k.next
	k.next += 2
	k.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: k.encode(fields), EndStream: ends, EndHeaders: true})
	return stream
}

func (k *talk) encode(fields []string) []byte {
	k.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		k.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return k.block.Bytes()
}

// post queues a request with a body.
func (k *talk) post(path, body string, fields ...string) (stream uint32) {
	all := []string{":method", "POST", ":scheme", k.scheme, ":authority", "a.example", ":path", path, "content-length", strconv.Itoa(len(body))}
	stream = k.headers(false, append(all, fields...)...)
	k.WriteData(stream, true, []byte(body))
	return stream
}

// send sends what is queued.
func (k *talk) send() {
	k.t.Helper()
	if _, err := k.Conn.Write(k.out.Bytes()); err != nil {
		k.t.Fatal(err)
	}
	k.out.Reset()
}

// outcome is what a client learns about a request.
type outcome struct {
	header  string // with the status
	body    string
	trailer string
	reset   string // reason for which the stream was reset
	done    bool
}

// text returns header fields in a form that can be compared.
func text(h []hpack.HeaderField) string {
	var lines []string
	for _, f := range h {
		if f.Name == "x-lines" && f.Value != "c" { // a value with a line break: net/http leaves it out, a loop replaces the break
			continue
		}
		long := f.Name == "content-length" && len(f.Value) > 3 // net/http leaves it out, because it begins to send a long response early
		if f.Name != "date" && f.Name != "alt-svc" && !long {
			lines = append(lines, f.Name+": "+f.Value)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// outcomes reads until the outcomes of so many requests are known, or the connection ends. Unless lazy
// is true, it opens the windows as data arrives. The result over says why the connection ended.
func (k *talk) outcomes(n int, lazy bool) (all map[uint32]*outcome, over string) {
	k.t.Helper()
	all = make(map[uint32]*outcome)
	for n > 0 {
		f, err := k.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			k.t.Fatalf("after %d outcomes, %d are missing: %+v", len(all), n, all)
		}
		if err != nil {
			return all, "closed"
		}
		id := f.Header().StreamID
		o := all[id]
		if o == nil {
			o = new(outcome)
			if id != 0 {
				all[id] = o
			}
		}
		before, ends := o.done, false
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return all, f.ErrCode.String()
			}
			over = f.ErrCode.String()
		case *http2.MetaHeadersFrame:
			if ends = f.StreamEnded(); o.header == "" {
				o.header = text(f.Fields)
			} else {
				o.trailer = text(f.Fields)
			}
		case *http2.DataFrame:
			o.body += string(f.Data())
			if ends = f.StreamEnded(); !lazy && len(f.Data()) > 0 {
				k.WriteWindowUpdate(0, uint32(len(f.Data())))
				if !ends {
					k.WriteWindowUpdate(id, uint32(len(f.Data())))
				}
				k.respond()
			}
		case *http2.RSTStreamFrame:
			if !o.done { // after a response, a reset says only that the rest of the body is not needed
				o.reset = f.ErrCode.String()
			}
			ends = true
		case *http2.PingFrame:
			if !f.IsAck() {
				k.WritePing(true, f.Data)
				k.respond()
			}
		}
		if o.done = o.done || ends; o.done && !before {
			n--
		}
	}
	return all, over
}

// respond sends what outcomes has queued. If that fails, the next read tells why.
func (k *talk) respond() {
	if k.later != nil {
		k.later <- bytes.Clone(k.out.Bytes())
	} else {
		k.Conn.Write(k.out.Bytes())
	}
	k.out.Reset()
}

// one sends what is queued and returns the outcome of one request.
func (k *talk) one(stream uint32) *outcome {
	k.t.Helper()
	k.send()
	all, over := k.outcomes(1, false)
	if all[stream] == nil {
		k.t.Fatalf("no outcome of stream %d: %v (%s)", stream, all, over)
	}
	return all[stream]
}

// dialogue is a conversation with a server, which a seed determines.
type dialogue struct {
	raw     []byte // what the client sends
	pieces  []int  // lengths of its parts
	streams int
	odd     map[uint32]bool // requests that may be invalid, so that a response and a reset are both possible
}

// randomDialogue returns a random conversation.
func randomDialogue(r *rand.Rand, secure bool) *dialogue {
	k := &talk{next: 1, scheme: "http"}
	if secure {
		k.scheme = "https"
	}
	k.Framer = http2.NewFramer(&k.out, nil)
	k.AllowIllegalWrites = true
	k.encoder = hpack.NewEncoder(&k.block)
	k.out.WriteString(http2.ClientPreface)
	window := []uint32{65535, 1 << 20, 100, 1, 0}[r.IntN(5)]
	k.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	if r.IntN(4) == 0 {
		k.WriteWindowUpdate(0, 1<<20)
	}
	s := &dialogue{streams: 1 + r.IntN(12), odd: make(map[uint32]bool)}
	var open []func() bool // each writes the next frame of a stream, and returns false if that was the last one
	for len(open) > 0 || k.next < uint32(2*s.streams) {
		switch i := r.IntN(10); {
		case i == 0:
			k.WritePing(false, [8]byte{1})
		case i == 1:
			k.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0})
		case i < 5 && k.next < uint32(2*s.streams) || len(open) == 0:
			if next := k.random(r, s); next != nil {
				open = append(open, next)
			}
		default:
			if i := r.IntN(len(open)); !open[i]() {
				open = slices.Delete(open, i, i+1)
			}
		}
	}
	for id := uint32(1); id < k.next && window < 100; id += 2 { // now the responses may arrive
		k.WriteWindowUpdate(id, 1<<20)
	}
	s.raw = k.out.Bytes()
	for left := len(s.raw); left > 0; {
		n := left
		if r.IntN(3) > 0 {
			n = 1 + r.IntN(min(left, 1+r.IntN(20000)))
		}
		s.pieces, left = append(s.pieces, n), left-n
	}
	return s
}

// random writes the start of a random request. It returns a function that writes the rest, or nil if
// there is none.
func (k *talk) random(r *rand.Rand, s *dialogue) func() bool {
	id := k.next
	k.next += 2
	method := []string{"POST", "POST", "POST", "PUT", "GET", "DELETE", "POST"}[r.IntN(7)]
	path := []string{"/later", "/later", "/now", "/a?b=c", "/a%2fb", "/declined", "/long", "/silent", "/none", "/odd", "//x", "/unread", "a"}[r.IntN(13)]
	fields := []string{":method", method, ":scheme", k.scheme, ":authority", "a.example:80", ":path", path}
	size := []int{0, 1, r.IntN(100), r.IntN(5000), r.IntN(70000)}[r.IntN(5)]
	odd := r.IntN(3) == 0
	if odd {
		s.odd[id] = true
	}
	if r.IntN(5) > 0 {
		fields = append(fields, "content-length", strconv.Itoa(size))
	}
	if path == "/later" && r.IntN(2) == 0 {
		fields = append(fields, "content-type", "application/json", "authorization", "Bearer x")
	}
	for odd && r.IntN(3) > 0 {
		at := []int{0, len(fields), len(fields)}[r.IntN(3)]
		fields = slices.Insert(fields, at, [][]string{
			{"x-a", "b"}, {"x-a", "c"}, {"cookie", "a=b"}, {"cookie", "c=d"}, {"te", "trailers"}, {"connection", "close"}, {"X-Upper", "a"},
			{"x-odd", "a\r\nb"}, {"x-space", " a "}, {"expect", "100-continue"}, {":path", "/twice"}, {"content-length", "5"}, {"host", "b"},
			{":authority", "c"}, {"x-long", strings.Repeat("x", 3000)}, {"x-umlaut", "ä"}, {"trailer", "X-T"}, {":unknown", "x"}, {"", "x"},
			{"upgrade", "h2c"}, {"keep-alive", "x"}, {"transfer-encoding", "chunked"}, {"content-length", "x"}, {"user-agent", "test"},
		}[r.IntN(24)]...)
	}
	block := bytes.Clone(k.encode(fields))
	ends := size == 0 && r.IntN(2) == 0
	p := http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: ends, EndHeaders: true}
	if r.IntN(8) == 0 {
		p.PadLength = byte(r.IntN(255))
	}
	if r.IntN(8) == 0 {
		p.Priority = http2.PriorityParam{StreamDep: id + 2, Weight: 3}
	}
	if r.IntN(8) == 0 {
		n := r.IntN(len(block))
		p.BlockFragment, p.EndHeaders = block[:n], false
		k.WriteHeaders(p)
		k.WriteContinuation(id, true, block[n:])
	} else {
		k.WriteHeaders(p)
	}
	if ends {
		return nil
	}
	early := []string{"/long", "/silent", "/none", "/unread", "a"} // the response may end before the request, and then no trailers are allowed
	left, trailers := size, !odd && !slices.Contains(early, path) && r.IntN(6) == 0
	return func() bool {
		n := left
		if r.IntN(2) == 0 {
			n = r.IntN(left + 1)
		}
		n = min(n, 16<<10)
		data := bytes.Repeat([]byte{byte('a' + id%26)}, n)
		left -= n
		last := left == 0 && r.IntN(2) == 0
		switch {
		case left == 0 && trailers:
			k.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: k.encode([]string{"x-t", "y"}), EndStream: true, EndHeaders: true})
			return false
		case r.IntN(4) == 0:
			k.WriteDataPadded(id, last, data, make([]byte, r.IntN(200)))
		default:
			k.WriteData(id, last, data)
		}
		return !last
	}
}

// play sends the conversation to a server.
func (s *dialogue) play(t testing.TB, to *Server, secure bool) (map[uint32]*outcome, string) {
	t.Helper()
	k := dial2(t, to, secure)
	defer k.Close()
	k.out.Reset()
	k.later = make(chan []byte, 10000)
	sent := make(chan struct{})
	go func() { // in a goroutine, because the server may respond before it has read everything
		defer close(sent)
		raw := s.raw
		for _, n := range s.pieces {
			k.Conn.Write(raw[:n])
			raw = raw[n:]
			runtime.Gosched()
		}
		for b := range k.later {
			k.Conn.Write(b)
		}
	}()
	all, over := k.outcomes(s.streams, false)
	close(k.later)
	k.Close()
	<-sent
	return all, over
}

// An event loop and net/http give the same responses to random conversations over HTTP/2.
func TestLoopHTTP2(t *testing.T) {
	p := newTwins(t)
	for seed := uint64(0); seed < 200 && !t.Failed(); seed++ {
		p.compareDialogue(t, seed)
	}
	if n := p.count.Load(); n < 100 && !netHTTPOnly {
		t.Errorf("the loops gave %d responses, want at least 100", n)
	}
}

func FuzzLoopHTTP2(f *testing.F) {
	p := newTwins(f)
	f.Add(uint64(0))
	f.Fuzz(p.compareDialogue)
}

// compareDialogue compares the responses of both servers to a random conversation.
func (p *twins) compareDialogue(t *testing.T, seed uint64) {
	s := randomDialogue(rand.New(rand.NewPCG(seed, 2)), seed%4 == 0)
	got, over := s.play(t, p.looped, seed%4 == 0)
	want, wantOver := s.play(t, p.plain, seed%4 == 0)
	if over != wantOver && len(s.odd) == 0 { // net/http closes a connection on which it gets the body of a request that it has refused
		t.Errorf("seed %d: the connection ended with %q, with net/http with %q", seed, over, wantOver)
	}
	for id := uint32(1); over+wantOver == "" && id < uint32(2*s.streams); id += 2 {
		a, b := got[id], want[id]
		if a == nil || b == nil || a.reset != b.reset && !s.odd[id] || a.reset+b.reset == "" && *a != *b {
			t.Errorf("seed %d: stream %d: got %s, with net/http %s", seed, id, brief(a), brief(b))
		}
	}
}

func brief(o *outcome) string {
	if o == nil {
		return "nothing"
	}
	return fmt.Sprintf("%+v (%d bytes)", outcome{o.header, o.body[:min(len(o.body), 500)], o.trailer, o.reset, o.done}, len(o.body))
}
