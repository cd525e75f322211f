package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// burst opens connections to a server that does not serve yet, and sends a request on each. When the
// server then accepts the connections, each request has already arrived, so that an event loop
// handles it while the next connection is being accepted.
func burst(t *testing.T, s *Server, n int, request string) []net.Conn {
	t.Helper()
	var all []net.Conn
	for range n {
		c, err := net.Dial("tcp", s.HTTP())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// listenBounded returns a server with a connection limit that the tests do not reach.
func listenBounded(t *testing.T) *Server {
	t.Helper()
	s, err := Listen(Options{HTTP: "127.0.0.1:0", HTTPS: "off", Logger: quiet, Connections: func() int { return 1000 }, NetHTTPOnly: netHTTPOnly})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// places returns the records of all open connections.
func (c *connections) places() []*place {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*place
	for _, a := range c.of.All() {
		for p := range a.places.All() {
			all = append(all, p)
		}
	}
	return all
}

// If an event loop hands a new connection to net/http at once, the connection can still be closed
// to make room for another.
func TestHandedOverConnectionsCanBeReplaced(t *testing.T) {
	const n = 200
	s := listenBounded(t)
	conns := burst(t, s, n, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	s.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") }), TLS{})
	defer s.Shutdown(context.Background())
	b := make([]byte, 1<<10)
	for _, c := range conns {
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range s.within.places() {
		p.holder.Evict()
	}
	for i, c := range conns {
		if n, err := c.Read(b); err != io.EOF {
			t.Fatalf("connection %d was not closed: read %d bytes, %v", i, n, err)
		}
	}
}

// A connection with a request is never idle, even if the request arrived with the connection.
func TestBusyConnectionsAreNotIdle(t *testing.T) {
	const n = 200
	s := listenBounded(t)
	burst(t, s, n, post11("/", "", "x"))
	begun, over := make(chan struct{}, n), make(chan struct{})
	s.Serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { begun <- struct{}{}; <-over }), TLS{})
	defer s.Shutdown(context.Background())
	defer close(over)
	for range n {
		<-begun
	}
	idle := 0
	for _, p := range s.within.places() {
		if p.since.Load() != inUse {
			idle++
		}
	}
	if idle > 0 {
		t.Errorf("%d of %d connections with a request count as idle", idle, n)
	}
}
