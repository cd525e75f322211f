package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// startBusy starts a request and returns once its handler runs. The handler waits until the test
// closes the channel finish. The channel answered then receives the result of the request.
func startBusy(t *testing.T, w wire) (s *Server, finish chan struct{}, answered chan error) {
	t.Helper()
	started := make(chan struct{})
	finish, answered = make(chan struct{}), make(chan error, 1)
	s = listen(t)
	s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		select {
		case <-finish:
		case <-r.Context().Done():
		}
	}), secured())
	c := w.client(t)
	go func() {
		resp, err := c.Get(w.url(s))
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()
	<-started
	return s, finish, answered
}

// Shutdown waits for requests in flight. It accepts no connections while it waits.
func TestShutdownWaits(t *testing.T) {
	overEach(t, func(t *testing.T, w wire) {
		s, finish, answered := startBusy(t, w)
		down := make(chan error)
		go func() { down <- s.Shutdown(context.Background()) }()
		for _, address := range []string{s.HTTP(), s.HTTPS()} {
			for { // dial until the listener is closed; Shutdown closes it before it waits
				c, err := net.Dial("tcp", address)
				if err != nil {
					break
				}
				c.Close()
			}
		}
		<-s.http3.over
		select {
		case err := <-down:
			t.Fatalf("Shutdown did not wait: %v", err)
		default:
		}
		close(finish)
		if err := <-answered; err != nil {
			t.Errorf("the request failed: %v", err)
		}
		if err := <-down; err != nil {
			t.Error(err)
		}
	})
}

// When the context ends, Shutdown cuts off the remaining requests.
func TestShutdownCuts(t *testing.T) {
	overEach(t, func(t *testing.T, w wire) {
		s, _, answered := startBusy(t, w)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Shutdown returned %v, want the error of the context", err)
		}
		if err := <-answered; err == nil {
			t.Error("the request was answered, want it cut off")
		}
	})
}

// vanishing is a client socket that can stop sending and receiving without notice, like a machine
// that loses its power.
type vanishing struct {
	*net.UDPConn
	gone chan struct{}
}

func (v *vanishing) WriteTo(b []byte, to net.Addr) (int, error) {
	select {
	case <-v.gone:
		return len(b), nil
	default:
		return v.UDPConn.WriteTo(b, to)
	}
}

func (v *vanishing) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := v.UDPConn.ReadFrom(b)
		select {
		case <-v.gone:
			if err == nil {
				continue
			}
		default:
		}
		return n, from, err
	}
}

// Shutdown returns when its context ends, even if a client with a response in flight has vanished.
func TestVanishedClient(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		control.Flush()
		<-r.Context().Done()
	})
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	v := &vanishing{socket, make(chan struct{})}
	transport := &quic.Transport{Conn: struct{ net.PacketConn }{v}}
	defer transport.Close()
	address, _ := net.ResolveUDPAddr("udp", s.HTTPS())
	c, err := transport.Dial(t.Context(), address, &tls.Config{RootCAs: trust, ServerName: "127.0.0.1", NextProtos: []string{"h3"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := http.NewRequest("GET", "https://"+s.HTTPS(), nil)
	resp, err := (&http3.Transport{}).NewClientConn(c).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	close(v.gone)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v, want the error of the context", err)
	}
	if took := time.Since(began); took > quicSilence/2 {
		t.Errorf("Shutdown took %v, longer than its context", took)
	}
}

// Shutdown does not wait until a client closes its idle connection.
func TestIdleClient(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	c, err := quic.DialAddr(t.Context(), s.HTTPS(), &tls.Config{RootCAs: trust, NextProtos: []string{"h3"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Once this stream arrives, the server has accepted the connection.
	if _, err := c.AcceptUniStream(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), quicSilence/2)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown returned %v, want nil", err)
	}
	<-c.Context().Done()
	var closed *quic.ApplicationError
	if err := context.Cause(c.Context()); !errors.As(err, &closed) || closed.ErrorCode != quic.ApplicationErrorCode(http3.ErrCodeNoError) {
		t.Errorf("the client's connection ended with %v, want ErrCodeNoError", err)
	}
}

// After a crash, the next process resets the HTTP/3 connections of the crashed process, so that
// clients need not wait for a timeout.
func TestStatelessReset(t *testing.T) {
	key := [32]byte{1, 2, 3}
	t1 := secured()
	t1.ResetKey = &key
	s := listen(t)
	s.Serve(http.NotFoundHandler(), t1)
	c, err := quic.DialAddr(t.Context(), s.HTTPS(), &tls.Config{RootCAs: trust, NextProtos: []string{"h3"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The client completes one request first. Without it, the client might still be repeating its
	// handshake when the process crashes, and packets of a handshake are not answered with a reset.
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.HTTPS(), nil)
	resp, err := (&http3.Transport{}).NewClientConn(c).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	s.http3.socket.Close() // like kill -9, this sends nothing to the client
	<-s.http3.over
	s.Shutdown(t.Context())
	again, err := Listen(Options{HTTP: "off", HTTPS: s.HTTPS(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	again.Serve(http.NotFoundHandler(), t1)
	defer again.Shutdown(context.Background())
	str, err := c.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	str.Write(make([]byte, 1000))
	<-c.Context().Done()
	var reset *quic.StatelessResetError
	if err := context.Cause(c.Context()); !errors.As(err, &reset) {
		t.Errorf("the client's connection ended with %v, want a stateless reset", err)
	}
}
