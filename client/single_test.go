package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"testing"
	"time"
)

// If a server takes no more requests over a connection, for example because it is about to shut
// down, the next request does not fail but opens another connection. Closing the transport closes
// all connections.
func TestSingleReconnects(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/last" {
			w.Header().Set("Connection", "close") // over HTTP/2, net/http then sends GOAWAY
		}
		io.Copy(w, r.Body)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	c, err := New(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	s := newSingle(c.newTransport(false), server.Listener.Addr().String())
	defer s.CloseIdleConnections()
	conns := map[net.Conn]bool{}
	send := func(path string) error {
		trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { conns[i.Conn] = true }}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", server.URL+path, strings.NewReader("x"))
		if err != nil {
			return err
		}
		resp, err := s.RoundTrip(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	for i, path := range []string{"/", "/last", "/", "/", "/last", "/"} {
		if err := send(path); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if path == "/last" {
			for end := time.Now().Add(time.Minute); s.conn.Available() > 0; runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatal("the client did not get the GOAWAY")
				}
			}
		}
	}
	if len(conns) != 3 {
		t.Errorf("%d connections carried the requests, want 3", len(conns))
	}
	s.CloseIdleConnections()
	if err := send("/"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a request after CloseIdleConnections got %v, want %v", err, net.ErrClosed)
	}
}

// A connection that breaks before the server says anything does not stay in use.
func TestSingleDropsBrokenConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{}, 2)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
			accepted <- struct{}{}
		}
	}()
	defer func() { l.Close(); <-ended }()
	c, err := New(Options{URL: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	s := newSingle(c.newTransport(false), l.Addr().String())
	defer s.CloseIdleConnections()
	for range cap(accepted) {
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {}}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", "http://x/", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := s.RoundTrip(r); err == nil {
			resp.Body.Close()
			t.Fatal("a broken connection carried a request")
		}
		<-accepted // the request has opened a connection
	}
}

// A request without a body fails like any other if no connection can be opened.
func TestSingleWithoutBody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c, err := New(Options{URL: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	s := newSingle(c.newTransport(false), address)
	defer s.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := s.RoundTrip(r); err == nil {
		resp.Body.Close()
		t.Error("a request succeeded without a server")
	}
}

// A server that takes no request over any of its connections, such as an overloaded proxy, must not
// make the client open one connection after the other without a pause.
func TestSingleUnusableConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		accepted := 0
		defer func() { ended <- accepted }()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if accepted++; accepted == 50 {
				cancel() // otherwise a faulty client would go on forever
			}
			go conn.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00" + // SETTINGS
				"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")) // GOAWAY
		}
	}()
	c, err := New(Options{URL: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	s := newSingle(c.newTransport(false), l.Addr().String())
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		for end := time.Now().Add(time.Minute); s.conn.Available() > 0 && time.Now().Before(end); runtime.Gosched() {
		} // until the client has got the GOAWAY
	}}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), "POST", "http://x/", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := s.RoundTrip(r); err == nil {
		resp.Body.Close()
		t.Error("a connection that takes no requests carried one")
	}
	s.CloseIdleConnections()
	l.Close()
	if accepted := <-ended; accepted > 2 {
		t.Errorf("one request opened %d connections", accepted)
	}
}
