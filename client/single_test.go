package client

import (
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

// When a server takes no more requests over a connection, as before it shuts down, the next request
// opens another connection and does not fail. Closing the transport closes all connections.
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
		t.Errorf("a request after the end got %v, want %v", err, net.ErrClosed)
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
		<-accepted // each request opens a connection
	}
}

// A request fails if the service is down, whether it has a body or not.
func TestSingleWithoutService(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, err := New(Options{URL: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	s := newSingle(c.newTransport(false), l.Addr().String())
	defer s.CloseIdleConnections()
	for _, body := range []io.Reader{nil, strings.NewReader("x")} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://x/", body)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := s.RoundTrip(r); err == nil {
			resp.Body.Close()
			t.Error("a request succeeded without a service")
		}
	}
}
