package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// deferring is a handler for event loops. It leaves requests for /later pending until the test
// finishes them.
type deferring struct {
	http.Handler
	pending chan *deferred
}

// deferred is a pending request.
type deferred struct {
	w        http.ResponseWriter
	body     string
	finished atomic.Bool
}

func (d *deferred) Finish() {
	d.finished.Store(true)
	if d.body == "panic" {
		panic("planted")
	}
	io.WriteString(d.w, "later "+d.body)
}

// finish completes the request, from any goroutine.
func (d *deferred) finish() { d.w.(interface{ Ready(interface{ Finish() }) }).Ready(d) }

func (h *deferring) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	switch r.URL.Path {
	case "/later":
		h.pending <- &deferred{w: w, body: string(r.Body.(interface{ Take() []byte }).Take())}
		return true, false
	case "/now":
		io.WriteString(w, "now")
		return true, true
	case "/panic":
		panic("planted")
	}
	return false, false
}

// serveDeferring starts a server with a deferring handler.
func serveDeferring(t *testing.T) (*Server, *deferring) {
	t.Helper()
	if netHTTPOnly {
		t.Skip("needs event loops")
	}
	s := listen(t)
	h := &deferring{Handler: http.HandlerFunc(mirror), pending: make(chan *deferred, 1000)}
	s.Serve(h, secured())
	return s, h
}

func dial(t *testing.T, s *Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", s.HTTP())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c, bufio.NewReader(c)
}

// expect reads a response and compares its body.
func expect(t *testing.T, in *bufio.Reader, want string) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != want {
		t.Fatalf("got %.100q, %d bytes, %v; want %.100q, %d bytes", body, len(body), err, want, len(want))
	}
	return resp
}

// Pending requests occupy no goroutine, and are answered when the handler finishes them.
func TestLater(t *testing.T) {
	s, h := serveDeferring(t)
	defer s.Shutdown(context.Background())
	const n = 200
	type client struct {
		net.Conn
		in *bufio.Reader
	}
	var clients []client
	for range n {
		c, in := dial(t, s)
		clients = append(clients, client{c, in})
		io.WriteString(c, post11("/now", "", "x"))
		expect(t, in, "now")
	}
	before := runtime.NumGoroutine()
	for i, c := range clients {
		io.WriteString(c, post11("/later", "", fmt.Sprint("body ", i)))
	}
	var all []*deferred
	for range n {
		all = append(all, <-h.pending)
	}
	if more := runtime.NumGoroutine() - before; more > n/10 {
		t.Errorf("%d pending requests take %d goroutines", n, more)
	}
	for i := range all {
		all[n-1-i].finish()
	}
	for i, c := range clients {
		expect(t, c.in, fmt.Sprint("later body ", i))
	}
}

// Responses are sent in the order of the requests, even if a later request could be answered first.
func TestLaterPipelined(t *testing.T) {
	s, h := serveDeferring(t)
	defer s.Shutdown(context.Background())
	c, in := dial(t, s)
	go func() {
		for range 50 {
			(<-h.pending).finish()
		}
	}()
	for i := range 50 {
		io.WriteString(c, post11("/later", "", fmt.Sprint(i))+post11("/unread", "", "x")+post11("/now", "", ""))
	}
	for i := range 50 {
		expect(t, in, fmt.Sprint("later ", i))
		expect(t, in, "no\n")
		expect(t, in, "now")
	}
}

// A panic in ServeLater or in Finish ends only its connection.
func TestLaterPanic(t *testing.T) {
	s, h := serveDeferring(t)
	defer s.Shutdown(context.Background())
	if got := ask(t, s.HTTP(), post11("/panic", "", "x")+post11("/now", "", "x")); len(got) != 0 {
		t.Errorf("a panic in ServeLater: got the responses %v, want none", got)
	}
	go func() { (<-h.pending).finish() }()
	if got := ask(t, s.HTTP(), post11("/later", "", "panic")+post11("/now", "", "x")); len(got) != 0 {
		t.Errorf("a panic in Finish: got the responses %v, want none", got)
	}
	if got := ask(t, s.HTTP(), post11("/now", "", "x")); len(got) != 1 {
		t.Errorf("after the panics, a request got the responses %v, want one", got)
	}
}

// Shutdown waits for pending requests. Their responses say that the connection will be closed.
func TestLaterShutdown(t *testing.T) {
	s, h := serveDeferring(t)
	c, in := dial(t, s)
	io.WriteString(c, post11("/later", "", "x")+post11("/now", "", "not handled"))
	pending := <-h.pending
	down := make(chan error)
	go func() { down <- s.Shutdown(context.Background()) }()
	for { // dial until the server accepts no more connections
		c, err := net.Dial("tcp", s.HTTP())
		if err != nil {
			break
		}
		c.Close()
	}
	pending.finish()
	if resp := expect(t, in, "later x"); !resp.Close {
		t.Error("the response does not say that the connection will be closed")
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after the response: %v, want the end of the connection", err)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// If the context ends first, Shutdown cuts off pending requests. The handler can still finish them.
func TestLaterShutdownCuts(t *testing.T) {
	s, h := serveDeferring(t)
	c, in := dial(t, s)
	io.WriteString(c, post11("/later", "", "x"))
	pending := <-h.pending
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown returned %v, want the error of the context", err)
	}
	if _, err := in.ReadByte(); err == nil {
		t.Error("the pending request was answered")
	}
	if pending.finish(); !pending.finished.Load() {
		t.Error("Finish was not called")
	}
}

// A client that reads its response slowly gets all of it, and the connection can be used again.
func TestLoopSlowReader(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Write(bytes.Repeat([]byte(r.URL.Path), 256<<10))
	})
	c, in := dial(t, s)
	for _, path := range []string{"/a", "/b"} {
		io.WriteString(c, post11(path, "", "x"))
		expect(t, in, strings.Repeat(path, 256<<10))
	}
}

// A handler is called even if the body of its request has not arrived completely. In this case
// net/http serves the request.
func TestLoopSlowBody(t *testing.T) {
	begun := make(chan bool, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		begun <- inLoop(w)
		mirror(w, r)
	})
	for _, first := range []string{"", post11("/", "", "x")} {
		c, in := dial(t, s)
		if first != "" {
			io.WriteString(c, first)
			if resp, err := http.ReadResponse(in, nil); err != nil {
				t.Fatal(err)
			} else {
				io.Copy(io.Discard, resp.Body)
			}
			<-begun
		}
		request := post11("/", "", "slow")
		io.WriteString(c, request[:len(request)-2])
		if <-begun {
			t.Error("a loop handled the request")
		}
		io.WriteString(c, "ow")
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("got %v, %v; want status 200", resp, err)
		}
	}
}

// An idle connection in a loop is closed to make room for a new one.
func TestLoopMakesRoom(t *testing.T) {
	s, err := Listen(Options{HTTP: "127.0.0.1:0", HTTPS: "off", Logger: quiet, Connections: func() int { return 4 }, NetHTTPOnly: netHTTPOnly})
	if err != nil {
		t.Fatal(err)
	}
	s.within.minIdle = 0
	s.Serve(http.HandlerFunc(mirror), TLS{})
	defer s.Shutdown(context.Background())
	for n := 0; n < 20; {
		c, in := dial(t, s)
		io.WriteString(c, post11("/none", "", ""))
		resp, err := http.ReadResponse(in, nil)
		switch {
		case err == nil && resp.StatusCode == http.StatusNoContent:
			n++
		case err == nil && resp.StatusCode != http.StatusServiceUnavailable: // a 503 is allowed, because the server looks for idle connections only from time to time
			t.Fatalf("got %v, want status 204 or 503", resp)
		}
	}
	if n := s.Connections(); n.Open > 4 || n.Replaced < 16 {
		t.Errorf("the counts are %+v, want at most 4 open and at least 16 replaced", n)
	}
}
