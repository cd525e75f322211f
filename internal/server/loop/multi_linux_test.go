package loop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"weir/internal/server/loop/h2"
)

// told is a Place that tells the test what happens.
type told chan string

func (told) Enter(Holder)     {}
func (p told) Begin() bool    { p <- "begins"; return true }
func (p told) Rest(time.Time) { p <- "rests" }
func (p told) Leave()         { p <- "leaves" }

func (p told) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-p:
			if got != w {
				t.Fatalf("the connection %s, want that it %s", got, w)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the connection never %s", w)
		}
	}
}

// multiClient is a client of an HTTP/2 connection that a loop serves.
type multiClient struct {
	net.Conn
	*http2.Framer
	t     *testing.T
	place told
	next  uint32
}

// newMulti starts loops and opens a connection. The parameter idle is the idle timeout.
func newMulti(t *testing.T, h http.Handler, idle time.Duration, settings ...http2.Setting) *multiClient {
	t.Helper()
	ls, err := New(Options{
		Handler: h, Logger: slog.New(slog.DiscardHandler), Head: 100 * time.Millisecond, Answer: idle, Idle: idle,
		HandOver: func(c net.Conn, place Place, _ *Session, _ []byte) { t.Error("handed over"); c.Close() },
		Tunnel:   func(c net.Conn) { t.Log("a tunnel"); go io.Copy(io.Discard, c) },
		HTTP2:    h2.Limits{Window: 1 << 20, Streams: 10, HeaderBytes: 32 << 10, Body: MaxBody},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		ls.Stop()
		ls.Wait(context.Background())
	})
	c.SetDeadline(time.Now().Add(time.Minute))
	m := &multiClient{Conn: c, t: t, place: make(told, 100), next: 1}
	m.Framer = http2.NewFramer(c, c)
	m.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	ls.Add(accepted.(*net.TCPConn), m.place, nil)
	io.WriteString(c, h2.Preface)
	m.WriteSettings(settings...)
	return m
}

func (m *multiClient) post(path, body string) {
	m.begin(path, len(body))
	m.WriteData(m.next-2, true, []byte(body))
}

// begin sends the start of a request whose body has n bytes.
func (m *multiClient) begin(path string, n int) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", path}, {"content-length", strconv.Itoa(n)}} {
		e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	m.WriteHeaders(http2.HeadersFrameParam{StreamID: m.next, BlockFragment: b.Bytes(), EndHeaders: true})
	m.next += 2
}

// read returns the next frame as text, and "end" at the end of the connection. It skips settings and
// updates of windows.
func (m *multiClient) read() string {
	m.t.Helper()
	for {
		f, err := m.ReadFrame()
		if errors.Is(err, io.EOF) {
			return "end"
		}
		if err != nil {
			m.t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			return fmt.Sprintf("%d status %s", f.StreamID, f.PseudoValue("status"))
		case *http2.DataFrame:
			return fmt.Sprintf("%d %s", f.StreamID, f.Data())
		case *http2.RSTStreamFrame:
			return fmt.Sprintf("%d reset %s", f.StreamID, f.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Sprintf("away %s", f.ErrCode)
		}
	}
}

func (m *multiClient) expect(want ...string) {
	m.t.Helper()
	for _, w := range want {
		if got := m.read(); got != w {
			m.t.Fatalf("got %q, want %q", got, w)
		}
	}
}

// echo is a handler that answers every request with its body.
type echo struct{}

func (echo) ServeHTTP(http.ResponseWriter, *http.Request) {}

func (echo) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	w.Write(r.Body.(interface{ Take() []byte }).Take())
	return true, true
}

// A connection without requests is told to end, and then closed.
func TestIdleHTTP2(t *testing.T) {
	m := newMulti(t, echo{}, 10*time.Millisecond)
	m.expect("away NO_ERROR", "end")
	m.place.expect(t, "leaves")

	m = newMulti(t, echo{}, 100*time.Millisecond)
	m.post("/", "abc")
	m.expect("1 status 200", "1 abc", "away NO_ERROR", "end")
	m.place.expect(t, "begins", "rests", "leaves")
}

// A connection that has something to send counts as in use, and so is not closed to make room. But a
// client cannot keep its connection by not accepting data from time to time.
func TestBlockedHTTP2(t *testing.T) {
	m := newMulti(t, echo{}, 200*time.Millisecond)
	m.post("/", "abc")
	m.expect("1 status 200", "1 abc")
	m.place.expect(t, "begins", "rests")
	var pings bytes.Buffer
	f := http2.NewFramer(&pings, nil)
	for range 10_000 {
		f.WritePing(false, [8]byte{})
	}
	for {
		over, sent := make(chan struct{}), make(chan struct{})
		go func() { // the server stops reading when the client does
			defer close(sent)
			for {
				select {
				case <-over:
					return
				default:
					m.Conn.Write(pings.Bytes())
				}
			}
		}()
		event := <-m.place
		close(over)
		if event == "leaves" {
			m.Conn.Close()
			<-sent
			return
		}
		if event != "begins" {
			t.Fatalf("the connection %s, want that it begins", event)
		}
		for resting := false; !resting; {
			select {
			case event := <-m.place:
				if event == "leaves" {
					m.Conn.Close()
					<-sent
					return
				}
				resting = true
			default:
				m.SetReadDeadline(time.Now().Add(time.Millisecond))
				io.Copy(io.Discard, m.Conn)
			}
		}
		<-sent
	}
}

// A response that the client does not accept is given up. The connection stays in use.
func TestGiveUpHTTP2(t *testing.T) {
	m := newMulti(t, echo{}, 50*time.Millisecond, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	m.post("/", "abc")
	m.expect("1 status 200", "1 a", "1 reset INTERNAL_ERROR")
	m.post("/", "d")
	m.expect("3 status 200", "3 d")
}

// panicking is a handler that keeps the first response writer and panics. It answers other requests
// when the test says so.
type panicking struct {
	echo
	writers chan http.ResponseWriter
}

func (h panicking) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	h.writers <- w
	if r.URL.Path == "/panic" {
		panic(http.ErrAbortHandler)
	}
	return true, false
}

type finishing func()

func (f finishing) Finish() { f() }

// A handler that panics after it has kept its response writer cannot write to the response of another
// request.
func TestPanicKeepsWriter(t *testing.T) {
	h := panicking{writers: make(chan http.ResponseWriter, 2)}
	m := newMulti(t, h, time.Minute)
	m.post("/panic", "abc")
	m.expect("1 reset INTERNAL_ERROR")
	m.post("/", "def")
	first, second := <-h.writers, <-h.writers
	for i, w := range []http.ResponseWriter{first, second} {
		w.(*exchange).Ready(finishing(func() { fmt.Fprintf(w, "response %d", i+1) }))
	}
	m.expect("3 status 200", "3 response 2")
	m.post("/", "ghi")
	third := <-h.writers
	third.(*exchange).Ready(finishing(func() { io.WriteString(third, "response 3") }))
	m.expect("5 status 200", "5 response 3")
}

// A client must send the whole header of a request in time.
func TestSlowHeaderHTTP2(t *testing.T) {
	for _, part := range []string{"\x00\x00\x05", "\x00\x00\x01\x01\x00\x00\x00\x00\x03\x82"} { // a part of a frame, and HEADERS without END_HEADERS
		m := newMulti(t, echo{}, time.Hour)
		m.post("/", "abc")
		m.expect("1 status 200", "1 abc")
		io.WriteString(m, part)
		m.expect("end")
	}
}

// A response is given up even if the client keeps the connection busy with requests in parts.
func TestGiveUpBesideRequests(t *testing.T) {
	m := newMulti(t, echo{}, 50*time.Millisecond, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	m.post("/", "abc")
	go func() { // without the blocked response, the connection rests between the requests
		for event := range m.place {
			if event == "leaves" {
				return
			}
		}
	}()
	over, sent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		for {
			select {
			case <-over:
				return
			default:
				m.begin("/", 1)
				m.WritePing(false, [8]byte{}) // a write of its own, so that the request arrives in parts
				m.WriteData(m.next-2, true, []byte("d"))
			}
		}
	}()
	for m.read() != "1 reset INTERNAL_ERROR" {
	}
	close(over)
	<-sent
}
