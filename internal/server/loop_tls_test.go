package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// secureClients opens connections over TLS. A request on each of them has been answered.
func secureClients(t *testing.T, s *Server, n int) (conns []net.Conn, in []*bufio.Reader) {
	t.Helper()
	for range n {
		c := reach(t, s.HTTPS(), true)
		t.Cleanup(func() { c.Close() })
		io.WriteString(c, post11("/now", "", "x"))
		conns, in = append(conns, c), append(in, bufio.NewReader(c))
		expect(t, in[len(in)-1], "now")
	}
	return conns, in
}

// Over TLS too, pending requests occupy no goroutine, and are answered when the handler finishes
// them, in one connection after the other. Pipelined requests wait for their turn.
func TestLaterOverTLS(t *testing.T) {
	s, h := serveDeferring(t)
	defer s.Shutdown(context.Background())
	const n = 50
	clients, in := secureClients(t, s, n)
	before := runtime.NumGoroutine()
	for i, c := range clients {
		io.WriteString(c, post11("/later", "", fmt.Sprint("body ", i))+post11("/now", "", "x"))
	}
	all := map[string]*deferred{}
	for range n {
		d := <-h.pending
		all[d.body] = d
	}
	if more := runtime.NumGoroutine() - before; more > n/10 {
		t.Errorf("%d pending requests take %d goroutines", n, more)
	}
	for i := range clients {
		all[fmt.Sprint("body ", i)].finish()
		expect(t, in[i], fmt.Sprint("later body ", i))
		expect(t, in[i], "now")
	}
}

// A handler sees the TLS session and the address of the client, in an event loop and after the
// connection was handed over to net/http.
func TestSessionOfRequest(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.TLS != nil && r.TLS.HandshakeComplete, " ", r.RemoteAddr, " ", inLoop(w) || netHTTPOnly)
	})
	c := reach(t, s.HTTPS(), true)
	defer c.Close()
	in := bufio.NewReader(c)
	for _, looped := range []bool{true, false, false} {
		if looped {
			io.WriteString(c, post11("/", "", "x"))
		} else {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		expect(t, in, fmt.Sprint(true, " ", c.LocalAddr(), " ", looped || netHTTPOnly))
	}
}

// A client that reads slowly gets the whole of a long response over TLS, and then the next one.
func TestSlowReaderOverTLS(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 256<<10)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, long) })
	c := reach(t, s.HTTPS(), true)
	defer c.Close()
	in := bufio.NewReader(c)
	io.WriteString(c, post11("/", "", "x")+post11("/", "", "x"))
	expect(t, in, long)
	expect(t, in, long)
}

// When the server closes a connection over TLS, it says so, and the client can tell that nothing was
// cut off.
func TestSessionEnds(t *testing.T) {
	s, _ := serveDeferring(t)
	clients, in := secureClients(t, s, 2)
	io.WriteString(clients[0], post11("/now", "Connection: close\r\n", "x"))
	expect(t, in[0], "now")
	s.Shutdown(context.Background())
	for i := range clients {
		if _, err := in[i].ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("client %d: got %v, want the end of the session", i, err)
		}
	}
}

// A client that does not speak TLS gets a response, and a client that never ends its handshake does
// not delay a shutdown.
func TestNoSession(t *testing.T) {
	s := serve(t, mirror)
	got := ask(t, s.HTTPS(), post11("/", "", "x"))
	if len(got) != 1 || got[0].status != http.StatusBadRequest {
		t.Errorf("cleartext on the port for TLS got %v, want status 400", got)
	}
	c := reach(t, s.HTTPS(), false)
	defer c.Close()
	io.WriteString(c, "\x16\x03\x01")
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// A panic during a handshake ends only its connection.
func TestPanicInHandshake(t *testing.T) {
	var panicked atomic.Bool
	s := listen(t)
	s.Serve(http.HandlerFunc(mirror), TLS{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if !panicked.Swap(true) {
			panic("planted")
		}
		return &certificate, nil
	}})
	defer s.Shutdown(context.Background())
	if got := askInPieces(t, reach(t, s.HTTPS(), true), []string{post11("/", "", "x")}); len(got) != 0 {
		t.Errorf("the connection whose handshake panicked got %v", got)
	}
	if got := askInPieces(t, reach(t, s.HTTPS(), true), []string{post11("/", "", "x")}); len(got) != 1 {
		t.Errorf("the next connection got %v, want a response", got)
	}
}

// A shutdown whose time is up does not wait for a handshake.
func TestShutdownDuringHandshake(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	s := listen(t)
	s.Serve(http.HandlerFunc(mirror), TLS{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		close(begun)
		<-release
		return &certificate, nil
	}})
	c := reach(t, s.HTTPS(), false)
	defer c.Close()
	go tls.Client(c, &tls.Config{RootCAs: trust, ServerName: "127.0.0.1"}).Handshake()
	<-begun
	over, cancel := context.WithCancel(context.Background())
	cancel()
	s.Shutdown(over)
	close(release)
}

// The server closes a connection whose client has stopped sending in the middle of a record, while a
// request was in flight.
func TestClientEndsWithinRecord(t *testing.T) {
	s, h := serveDeferring(t)
	defer s.Shutdown(context.Background())
	clients, in := secureClients(t, s, 1)
	io.WriteString(clients[0], post11("/later", "", "x"))
	pending := <-h.pending
	raw := clients[0].(*tls.Conn).NetConn().(*net.TCPConn)
	raw.Write([]byte{0x17, 3, 3})
	raw.CloseWrite()
	pending.finish()
	expect(t, in[0], "later x")
	if _, err := in[0].ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the session", err)
	}
}
