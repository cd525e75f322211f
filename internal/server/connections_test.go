package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// limited starts a server with a low connection limit.
func limited(t *testing.T, most int, o Options) *Server {
	t.Helper()
	o.HTTP, o.HTTPS, o.Connections = "127.0.0.1:0", "127.0.0.1:0", func() int { return most }
	if o.Logger == nil {
		o.Logger = quiet
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }), secured())
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	return s
}

// connect connects from an address, sends a request, and reports whether the connection was
// accepted and the request answered.
func connect(t *testing.T, s *Server, from string) (net.Conn, bool) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	c, err := d.Dial("tcp", s.HTTP())
	if err != nil {
		t.Skipf("this machine has no address %s: %v", from, err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
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

// One address gets half of all connections, and no connection is accepted beyond the limit.
func TestConnectionLimits(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	s := limited(t, 4, Options{Logger: slog.New(slog.NewTextHandler(&locked{&mu, &log}, nil))})
	var in []net.Conn
	for i, c := range []struct {
		from string
		ok   bool
	}{
		{"127.0.0.1", true}, {"127.0.0.1", true},
		{"127.0.0.1", false}, // this address has half of all connections
		{"127.0.0.2", true}, {"127.0.0.3", true},
		{"127.0.0.4", false}, // all connections are in use
	} {
		conn, ok := connect(t, s, c.from)
		if ok != c.ok {
			t.Fatalf("connection %d, from %s: accepted is %v, want %v", i, c.from, ok, c.ok)
		}
		if ok {
			in = append(in, conn)
		}
	}
	in[3].Close()
	waitOpen(t, s, 3)
	if _, ok := connect(t, s, "127.0.0.1"); ok {
		t.Error("an address with half of all connections got another one")
	}
	if _, ok := connect(t, s, "127.0.0.4"); !ok {
		t.Error("a closed connection does not make room for another one")
	}
	mu.Lock()
	defer mu.Unlock()
	if got := log.String(); strings.Count(got, "connections refused") != 1 || !strings.Contains(got, "address=127.0.0.1") {
		t.Errorf("want one log entry about refused connections, got:\n%s", got)
	}
}

// A proxy can use all connections, and no more.
func TestProxyConnections(t *testing.T) {
	s := limited(t, 3, Options{Proxy: func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.1") }})
	for range 3 {
		if _, ok := connect(t, s, "127.0.0.1"); !ok {
			t.Fatal("a proxy was refused")
		}
	}
	if _, ok := connect(t, s, "127.0.0.1"); ok {
		t.Fatal("a connection beyond the limit was accepted")
	}
}

// Connections of every protocol count, are refused beyond the limit, and are released when they
// close.
func TestConnectionsOfEveryProtocol(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
		s := limited(t, 2, Options{})
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
			t.Fatal("the connection was not released")
		}
		if resp, err := w.client(t).Get(w.url(s)); err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("a connection beyond the limit got status %d", resp.StatusCode)
			}
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

// An HTTP/3 connection that never sends a complete request is closed, however many streams it
// opens. One with a request in flight is not.
func TestIncompleteRequests(t *testing.T) {
	s := listen(t)
	s.http3.idle = 50 * time.Millisecond
	finish := make(chan struct{})
	s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
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
		str.Write([]byte{1, 40, 0}) // a HEADERS frame of 40 bytes, with only the first one
	}
	select {
	case <-conn.Context().Done():
	case <-ctx.Done():
		t.Fatal("the connection was not closed")
	}
	if s.http3.busy.Load() != 1 {
		t.Error("the request in flight was ended")
	}
}
