package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// serveLimited starts a server with a low connection limit. The server never closes an idle
// connection to make room, unless the test lowers connections.minIdle. A request for /wait is
// answered when the test ends.
func serveLimited(t *testing.T, most int, o Options) *Server {
	t.Helper()
	o.HTTP, o.HTTPS, o.Connections = "127.0.0.1:0", "127.0.0.1:0", func() int { return most }
	if o.Logger == nil {
		o.Logger = quiet
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	s.within.minIdle = time.Hour
	over := make(chan struct{})
	s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if io.WriteString(w, r.Proto); r.URL.Path == "/wait" {
			http.NewResponseController(w).Flush()
			<-over
		}
	}), secured())
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	t.Cleanup(func() { close(over) })
	return s
}

// connect connects from an address and sends a request. It reports whether the server accepted the
// connection and answered the request.
func connect(t *testing.T, s *Server, from string) (net.Conn, bool) {
	t.Helper()
	return request(t, s, from, "/")
}

func request(t *testing.T, s *Server, from, path string) (net.Conn, bool) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	c, err := d.Dial("tcp", s.HTTP())
	if err != nil {
		t.Skipf("this machine has no address %s: %v", from, err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	b := make([]byte, 1024)
	n, _ := c.Read(b)
	return c, strings.HasPrefix(string(b[:n]), "HTTP/1.1 200")
}

// waitOpen waits until the server has n open connections.
func waitOpen(t *testing.T, s *Server, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		s.http.connections.mu.Lock()
		open := s.http.connections.open
		s.http.connections.mu.Unlock()
		if open == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are open, want %d", open, n)
		}
		runtime.Gosched()
	}
}

// waitIdle waits until the server has recorded n connections as idle.
func waitIdle(t *testing.T, s *Server, n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		idle := 0
		s.within.mu.Lock()
		for _, a := range s.within.of.All() {
			for p := range a.places.All() {
				if p.since.Load() > 0 {
					idle++
				}
			}
		}
		s.within.mu.Unlock()
		if idle == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are idle, want %d", idle, n)
		}
	}
}

// One address can take three quarters of all connections. No connection beyond the limit is
// accepted.
func TestConnectionLimits(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	s := serveLimited(t, 8, Options{Logger: slog.New(slog.NewTextHandler(&locked{&mu, &log}, nil))})
	var in []net.Conn
	for i, c := range []struct {
		from string
		ok   bool
	}{
		{"127.0.0.1", true}, {"127.0.0.1", true}, {"127.0.0.1", true}, {"127.0.0.1", true}, {"127.0.0.1", true}, {"127.0.0.1", true},
		{"127.0.0.1", false}, // the last quarter is for other addresses
		{"127.0.0.2", true}, {"127.0.0.3", true},
		{"127.0.0.4", false}, // all connections are in use
	} {
		conn, ok := connect(t, s, c.from)
		if ok != c.ok {
			t.Fatalf("connection %d, from %s: accepted: %v, want %v", i, c.from, ok, c.ok)
		}
		if ok {
			in = append(in, conn)
		}
	}
	in[7].Close()
	waitOpen(t, s, 7)
	if _, ok := connect(t, s, "127.0.0.1"); ok {
		t.Error("the address that has most of the connections got another one")
	}
	if _, ok := connect(t, s, "127.0.0.4"); !ok {
		t.Error("a new connection was refused although another one was closed")
	}
	if n := s.Connections(); n.Open != 8 || n.Limit != 8 || n.Refused != 3 || n.Replaced != 0 {
		t.Errorf("the counts are %+v, want 8 open, limit 8, 3 refused, 0 replaced", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := log.String(); strings.Count(got, "connections refused") != 1 || !strings.Contains(got, "address=127.0.0.1") {
		t.Errorf("want one log entry about refused connections, got:\n%s", got)
	}
}

// If all connections are taken when a client connects, the server closes the connection that has
// been idle longest. Otherwise the idle connections of two addresses could lock out all other
// addresses. Connections with a request in flight stay open.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	s := serveLimited(t, 8, Options{})
	s.within.mu.Lock()
	s.within.minIdle = 0
	s.within.mu.Unlock()
	var idle []net.Conn
	want := func(from, path string) {
		t.Helper()
		c, ok := request(t, s, from, path)
		if !ok {
			t.Fatalf("a connection from %s was refused", from)
		}
		if path == "/" {
			idle = append(idle, c)
		}
	}
	closed := func() {
		t.Helper()
		if n, err := idle[0].Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatal("the connection that was idle longest was not closed")
		}
		idle = idle[1:]
	}
	want("127.0.0.1", "/wait")
	for range 4 {
		want("127.0.0.1", "/")
		waitIdle(t, s, len(idle))
	}
	for _, from := range []string{"127.0.0.2", "127.0.0.2", "127.0.0.3"} {
		want(from, "/")
		waitIdle(t, s, len(idle))
	}
	for _, from := range []string{"127.0.0.4", "127.0.0.5", "127.0.0.1"} {
		want(from, "/")
		closed()
		waitIdle(t, s, len(idle))
	}
	if n := s.Connections(); n.Replaced != 3 || n.Refused != 0 || n.Open != 8 {
		t.Errorf("the counts are %+v, want 8 open, 0 refused, 3 replaced", n)
	}
}

// Addresses share the connections by the rule of D34. A few connections are reserved for this
// machine.
func TestConnectionShares(t *testing.T) {
	c := newConnections(Options{Connections: func() int { return 1024 }, Logger: quiet})
	fill := func(at string) (n int) {
		for {
			if _, ok := c.take(&net.TCPAddr{IP: net.ParseIP(at), Port: 1}); !ok {
				return n
			}
			n++
		}
	}
	if n := fill("192.0.2.1"); n != 1024-16-256 {
		t.Errorf("one address got %d of 1024 connections, want all but the reserve and the last quarter", n)
	}
	for i := range 6 {
		if n := fill(fmt.Sprintf("192.0.2.%d", 2+i)); n == 0 {
			t.Errorf("address %d got no connection", 2+i)
		}
	}
	for i := range 200 {
		fill(fmt.Sprintf("198.51.100.%d", i))
	}
	if c.open != 1024-16 {
		t.Errorf("%d connections are open, want all except those reserved for this machine", c.open)
	}
	if n := fill("127.0.0.1"); n == 0 || n > 16 {
		t.Errorf("this machine got %d connections, want 1 to 16", n)
	}
}

// A proxy can use all connections up to the limit, but not more.
func TestProxyConnections(t *testing.T) {
	s := serveLimited(t, 3, Options{Proxy: func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.1") }})
	for range 3 {
		if _, ok := connect(t, s, "127.0.0.1"); !ok {
			t.Fatal("a proxy was refused")
		}
	}
	if _, ok := connect(t, s, "127.0.0.1"); ok {
		t.Fatal("a connection beyond the limit was accepted")
	}
}

// Connections of every protocol count towards the limit and are refused beyond it. A connection
// stops counting when it is closed.
func TestConnectionsOfEveryProtocol(t *testing.T) {
	overEach(t, func(t *testing.T, w wire) {
		s := serveLimited(t, 1, Options{})
		c := w.client(t)
		get(t, c, w.url(s))
		if _, ok := connect(t, s, "127.0.0.1"); ok {
			t.Error("the connection is not counted")
		}
		c.CloseIdleConnections()
		if h3, ok := c.Transport.(*http3.Transport); ok {
			h3.Close()
		}
		waitOpen(t, s, 0)
		if _, ok := connect(t, s, "127.0.0.1"); !ok {
			t.Fatal("the connection still counts after it was closed")
		}
		if resp, err := w.client(t).Get(w.url(s)); err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("a connection beyond the limit got status %d, want 503", resp.StatusCode)
			}
		}
	})
}

// If a request arrives on an idle connection that the server is about to close to make room, no
// handler runs. If one did, the client would not get the response, and could not tell whether the
// request took effect.
func TestReplacedConnectionHandlesNothing(t *testing.T) {
	overEach(t, func(t *testing.T, w wire) {
		s, err := Listen(Options{HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Connections: func() int { return 8 }, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Shutdown(context.Background())
		var handled atomic.Int32
		s.Serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled.Add(1) }), secured())
		c := w.client(t)
		get(t, c, w.url(s))
		waitIdle(t, s, 1)
		s.within.mu.Lock()
		for _, a := range s.within.of.All() {
			for p := range a.places.All() {
				p.since.Store(replaced) // as in makeRoom, which then closes the connection in another goroutine
			}
		}
		s.within.mu.Unlock()
		body := struct{ io.Reader }{strings.NewReader("x")} // a body of this type cannot be sent twice, so the client does not retry over another connection
		if resp, err := c.Post(w.url(s), "text/plain", body); err == nil {
			resp.Body.Close()
			t.Errorf("the request got status %d, want an error", resp.StatusCode)
		}
		if n := handled.Load(); n != 1 {
			t.Errorf("the handler ran %d times, want once, for the first request", n)
		}
	})
}

func TestPlaceOf(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		a := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 1))
		if got := placeOf(a).String(); got != want {
			t.Errorf("%s counts as %s, want %s", from, got, want)
		}
	}
}

// The server closes an HTTP/3 connection on which the client never sends a complete request,
// however many streams the client opens. The server does not close a connection with a request in
// flight.
func TestIncompleteRequests(t *testing.T) {
	s := listen(t)
	s.http3.idle = 50 * time.Millisecond
	finish := make(chan struct{})
	s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-finish
	}), secured())
	defer s.Shutdown(context.Background())
	defer close(finish)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := wires["HTTP3"].client(t).Get("https://" + s.HTTPS())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, err := quic.DialAddr(ctx, s.HTTPS(), &tls.Config{RootCAs: trust, NextProtos: []string{"h3"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseWithError(0, "")
	for range 100 {
		str, err := conn.OpenStream()
		if err != nil {
			break // the connection is already closed
		}
		str.Write([]byte{1, 40, 0}) // the start of a HEADERS frame of 40 bytes, of which only the first is sent
	}
	select {
	case <-conn.Context().Done():
	case <-ctx.Done():
		t.Fatal("the connection was not closed")
	}
	if s.http3.busy.Load() != 1 {
		t.Error("the server ended the request in flight")
	}
}
