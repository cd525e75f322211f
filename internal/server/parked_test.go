package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/server/loop"
)

// script is a parked response: an event loop continues the response after its handler has returned.
// The script sends what the test queues. The text "leave" makes it continue in a goroutine, "end"
// ends it, and "panic" makes it panic.
type script struct {
	idle, accept time.Duration

	mu    sync.Mutex
	queue []string
	by    interface {
		Wake()
		Cut()
	}

	entered chan struct{} // receives a value each time the response is parked
	resumed chan http.ResponseWriter
	goOn    chan bool  // a value ends Resume; if it is true, Resume parks the response again
	left    chan error // receives the argument of Left
}

func newScript() *script {
	return &script{
		idle: time.Hour, accept: time.Hour, entered: make(chan struct{}, 10),
		resumed: make(chan http.ResponseWriter), goOn: make(chan bool), left: make(chan error, 1),
	}
}

// say queues texts and wakes the response.
func (s *script) say(texts ...string) {
	s.mu.Lock()
	s.queue = append(s.queue, texts...)
	by := s.by
	s.mu.Unlock()
	if by != nil {
		by.Wake()
	}
}

func (s *script) Enter(by interface {
	Wake()
	Cut()
}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by = by
	s.entered <- struct{}{}
}

func (s *script) Times() (idle, accept time.Duration) { return s.idle, s.accept }

func (s *script) Continue(b []byte, idle bool) (_ []byte, leaves, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		if idle {
			b = append(b, "idle\n"...)
		}
		return b, false, false
	}
	text := s.queue[0]
	s.queue = s.queue[1:]
	switch text {
	case "leave":
		return b, true, false
	case "end":
		return append(b, "ended\n"...), false, true
	case "panic":
		panic("planted")
	}
	return append(append(b, text...), '\n'), false, false
}

func (s *script) Resume(w http.ResponseWriter) {
	s.resumed <- w
	if <-s.goOn {
		w.(interface{ Park(loop.Parked) bool }).Park(s)
	}
}

func (s *script) Left(err error) { s.left <- err }

// parker is a handler that parks the response to each GET, with the next script. Other requests get
// the response "x".
type parker struct {
	scripts chan *script
	begun   string // the beginning of a parked response
}

func (p *parker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		io.WriteString(w, "x")
		return
	}
	w.Header().Set("X-Parked", "yes")
	io.WriteString(w, p.begun)
	http.NewResponseController(w).Flush()
	if !w.(interface{ Park(loop.Parked) bool }).Park(<-p.scripts) {
		io.WriteString(w, "not parked\n")
	}
}

// earlyParker is a parker that takes over every GET from an event loop.
type earlyParker struct {
	*parker
	t      *testing.T
	finish func() // completes what the parker has begun
}

func (p earlyParker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		p.t.Error("a GET has reached net/http")
	}
	p.parker.ServeHTTP(w, r)
}

func (p earlyParker) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	if r.Method != http.MethodGet {
		return false, false
	}
	go func() {
		p.parker.ServeHTTP(w, r)
		w.(interface{ Ready(interface{ Finish() }) }).Ready(finisher(p.finish))
	}()
	return true, false
}

type finisher func()

func (f finisher) Finish() { f() }

// bothWays calls the function test with a handler that net/http calls for a GET, and with one that
// takes it over from an event loop.
func bothWays(t *testing.T, test func(t *testing.T, serve func(...*script) *Server)) {
	t.Run("net/http", func(t *testing.T) {
		test(t, func(scripts ...*script) *Server { return serveParker(t, newParker(scripts...)) })
	})
	t.Run("event loop", func(t *testing.T) {
		test(t, func(scripts ...*script) *Server {
			return serveParker(t, earlyParker{newParker(scripts...), t, func() {}})
		})
	})
}

func newParker(scripts ...*script) *parker {
	p := &parker{make(chan *script, len(scripts)), "hello\n"}
	for _, s := range scripts {
		p.scripts <- s
	}
	return p
}

func serveParker(t *testing.T, h http.Handler) *Server {
	t.Helper()
	if netHTTPOnly {
		t.Skip("needs event loops")
	}
	server, err := Listen(Options{HTTP: "127.0.0.1:0", HTTPS: "off", Logger: quiet, Connections: func() int { return 10_000 }})
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(h, TLS{})
	return server
}

// receive returns the next value of a channel.
func receive[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatalf("after a minute, %s", what)
	}
	return v
}

// listener is the client of a parked response.
type listener struct {
	net.Conn
	in   *bufio.Reader
	body *bufio.Reader
}

func (l *listener) wants(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if got, err := l.body.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("got %.100q, %v; want %.100q", got, err, want)
		}
	}
}

// park opens a connection whose response is parked.
func (s *script) park(t *testing.T, server *Server, header string) *listener {
	t.Helper()
	c, in := dial(t, server)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"+header+"\r\n")
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{c, in, bufio.NewReader(resp.Body)}
	l.wants(t, "hello")
	receive(t, s.entered, "the response is not parked")
	return l
}

// A parked response takes no goroutine. It sends what it has to send, however slowly the client
// reads. Its connection then serves further requests, including those that the client sent earlier.
func TestParked(t *testing.T) { bothWays(t, testParked) }

func testParked(t *testing.T, serve func(...*script) *Server) {
	const n = 100
	var scripts []*script
	for range n {
		scripts = append(scripts, newScript())
	}
	server := serve(scripts...)
	defer server.Shutdown(context.Background())
	before := runtime.NumGoroutine()
	var clients []*listener
	for _, s := range scripts {
		clients = append(clients, s.park(t, server, ""))
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+n/10; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d parked responses take %d goroutines", n, runtime.NumGoroutine()-before)
		}
	}
	long := strings.Repeat("long ", 50_000) // more than the send buffer holds
	for i, c := range clients {
		scripts[i].say(fmt.Sprint("number ", i), "two")
		c.wants(t, fmt.Sprint("number ", i), "two")
		scripts[i].say(long, "after")
		io.WriteString(c, post11("/", "", "early"))
	}
	for i, c := range clients {
		c.wants(t, long, "after")
		scripts[i].say("end")
		c.wants(t, "ended")
		if rest, err := io.ReadAll(c.body); len(rest) > 0 || err != nil {
			t.Fatalf("after the end of the response, the client got %q, %v; want nothing more", rest, err)
		}
		if err := receive(t, scripts[i].left, "Left was not called"); err != nil {
			t.Errorf("Left was called with %v, want nil", err)
		}
		expect(t, c.in, "x")
		io.WriteString(c, post11("/", "", "next"))
		expect(t, c.in, "x")
	}
}

// A parked response ends when its client disconnects or does not read, when another goroutine calls
// Cut, and when the response panics. While there is nothing to send, the client gets signs of life.
func TestParkedEnds(t *testing.T) { bothWays(t, testParkedEnds) }

func testParkedEnds(t *testing.T, serve func(...*script) *Server) {
	for name, c := range map[string]struct {
		end  func(*script, *listener)
		want error
	}{
		"disconnected": {func(_ *script, l *listener) { l.Close() }, net.ErrClosed},
		"half closed":  {func(_ *script, l *listener) { l.Conn.(*net.TCPConn).CloseWrite() }, net.ErrClosed},
		"cut":          {func(s *script, _ *listener) { s.by.Cut() }, net.ErrClosed},
		"panic":        {func(s *script, _ *listener) { s.say("panic") }, net.ErrClosed},
		"slow": {func(s *script, _ *listener) {
			for range 100 {
				s.say(strings.Repeat("x", 1<<20))
			}
		}, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.idle, s.accept = 10*time.Millisecond, 50*time.Millisecond
			server := serve(s)
			l := s.park(t, server, "")
			l.wants(t, "idle", "idle")
			c.end(s, l)
			if err := receive(t, s.left, "Left was not called"); !errors.Is(err, c.want) {
				t.Errorf("Left was called with %v, want %v", err, c.want)
			}
			waitOpen(t, server, 0)
			if err := server.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A parked response can continue in a goroutine, and be parked again or end there.
func TestParkedResumes(t *testing.T) { bothWays(t, testParkedResumes) }

func testParkedResumes(t *testing.T, serve func(...*script) *Server) {
	s := newScript()
	server := serve(s)
	defer server.Shutdown(context.Background())
	l := s.park(t, server, "")
	for range 3 {
		s.say("leave")
		w := <-s.resumed
		io.WriteString(w, "from a goroutine\n")
		s.goOn <- true
		l.wants(t, "from a goroutine")
		receive(t, s.entered, "the response is not parked")
		s.say("parked again")
		l.wants(t, "parked again")
	}
	s.say("leave")
	io.WriteString(<-s.resumed, "last\n")
	s.goOn <- false
	l.wants(t, "last")
	if rest, err := io.ReadAll(l.body); len(rest) > 0 || err != nil {
		t.Fatalf("after the end of the response, the client got %q, %v; want nothing more", rest, err)
	}
	io.WriteString(l, post11("/", "", "next"))
	expect(t, l.in, "x")
}

// A deadline in the past stops a resumed response, and its connection is closed.
func TestParkedStopped(t *testing.T) { bothWays(t, testParkedStopped) }

func testParkedStopped(t *testing.T, serve func(...*script) *Server) {
	s := newScript()
	server := serve(s)
	defer server.Shutdown(context.Background())
	l := s.park(t, server, "")
	s.say("leave")
	control := http.NewResponseController(<-s.resumed)
	if err := errors.Join(control.SetWriteDeadline(time.Unix(1, 0)), control.SetWriteDeadline(time.Time{})); err != nil {
		t.Error(err)
	}
	s.goOn <- false
	if rest, err := io.ReadAll(l.body); len(rest) > 0 || err == nil {
		t.Errorf("got %q, %v; want a broken response", rest, err)
	}
}

// A resumed response whose write failed in the middle of a chunk is broken: its connection is
// closed, and nothing follows the part of the chunk.
func TestParkedTornChunk(t *testing.T) { bothWays(t, testParkedTornChunk) }

func testParkedTornChunk(t *testing.T, serve func(...*script) *Server) {
	s := newScript()
	server := serve(s)
	defer server.Shutdown(context.Background())
	l := s.park(t, server, "")
	s.say("leave")
	w := <-s.resumed
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("writing more than the client accepts returned %v, want a timeout", err)
	}
	s.goOn <- false
	if n, err := io.Copy(io.Discard, l.body); n == 64<<20 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client got %d bytes, %v; want only a part, and then a closed connection", n, err)
	}
}

// If the client sent Connection: close, its connection is closed after a parked response.
func TestParkedLast(t *testing.T) { bothWays(t, testParkedLast) }

func testParkedLast(t *testing.T, serve func(...*script) *Server) {
	s := newScript()
	server := serve(s)
	defer server.Shutdown(context.Background())
	l := s.park(t, server, "Connection: close\r\n")
	s.say("end")
	l.wants(t, "ended")
	if rest, err := io.ReadAll(l.in); len(rest) > 0 && string(rest) != "0\r\n\r\n" || err != nil {
		t.Errorf("after the end of the response, the client got %q, %v; want nothing more", rest, err)
	}
}

// A response without chunks, or to a request with a body, is not parked.
func TestNotParked(t *testing.T) {
	server := serveParker(t, unaskedParker{newParker(newScript(), newScript()), t})
	defer server.Shutdown(context.Background())
	for _, request := range []string{
		"GET / HTTP/1.0\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nContent-Length: 1\r\n\r\nx",
	} {
		c, in := dial(t, server)
		io.WriteString(c, request)
		expect(t, in, "hello\nnot parked\n")
	}
}

// Shutdown waits for parked responses, whether a loop or a goroutine continues them. If its context
// ends first, it cuts them off.
func TestParkedShutdown(t *testing.T) { bothWays(t, testParkedShutdown) }

func testParkedShutdown(t *testing.T, serve func(...*script) *Server) {
	for _, cut := range []bool{false, true} {
		waiting, away := newScript(), newScript()
		server := serve(waiting, away)
		one, two := waiting.park(t, server, ""), away.park(t, server, "")
		away.say("leave")
		w := <-away.resumed
		ctx, cancel := context.WithCancel(context.Background())
		down := make(chan error, 1)
		go func() { down <- server.Shutdown(ctx) }()
		for { // dial until the server accepts no more connections
			c, err := net.Dial("tcp", server.HTTP())
			if err != nil {
				break
			}
			c.Close()
		}
		if cut {
			cancel()
			if err := <-down; !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown returned %v, want the error of the context", err)
			}
			if err := <-waiting.left; !errors.Is(err, net.ErrClosed) {
				t.Errorf("Left of the parked response was called with %v, want net.ErrClosed", err)
			}
			if _, err := io.WriteString(w, "x"); err == nil {
				t.Error("the connection of the resumed response is open")
			}
			away.goOn <- true // Resume tries to park the response, but the loops have ended
			if err := <-away.left; err == nil {
				t.Error("the resumed response was parked")
			}
			continue
		}
		io.WriteString(w, "almost\n")
		away.goOn <- true
		<-away.entered
		for _, s := range []*script{waiting, away} {
			select {
			case err := <-down:
				t.Fatalf("Shutdown did not wait: %v", err)
			default:
			}
			s.say("end")
		}
		one.wants(t, "ended")
		two.wants(t, "almost", "ended")
		for _, l := range []*listener{one, two} {
			if rest, err := io.ReadAll(l.body); len(rest) > 0 || err != nil {
				t.Errorf("after the end of the response, the client got %q, %v; want nothing more", rest, err)
			}
		}
		if err := <-down; err != nil {
			t.Error(err)
		}
		cancel()
	}
}
