package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// After a refused header net/http waits half a second for the client to read the answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// serve starts a server on a free port, and stops it in the end.
func serve(t *testing.T, h http.HandlerFunc) *Server {
	t.Helper()
	s := listen(t, h)
	s.Serve()
	t.Cleanup(func() { s.Shutdown(t.Context()) })
	return s
}

func listen(t *testing.T, h http.HandlerFunc) *Server {
	t.Helper()
	s, err := Listen(Options{HTTP: "127.0.0.1:0", Handler: h, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// client speaks one protocol only.
func client(t *testing.T, h2 bool) *http.Client {
	var p http.Protocols
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// HTTP/1.1 and, by prior knowledge, HTTP/2 answer on one port.
func TestProtocols(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	for h2, want := range map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"} {
		resp, err := client(t, h2).Get("http://" + s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != want {
			t.Errorf("got %q, %v, want %s", body, err, want)
		}
	}
}

// OPTIONS * goes to the handler, as everything else.
func TestGeneralOptions(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) })
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 418 ")) {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestHeaderTooLarge(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {})
	r, _ := http.NewRequest("GET", "http://"+s.Addr(), nil)
	r.Header.Set("X-Long", strings.Repeat("a", maxHeaderBytes+8<<10))
	resp, err := client(t, false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// A taken address is an error that names the flag.
func TestAddressInUse(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	other, err := Listen(Options{HTTP: s.Addr(), Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "--http") || !strings.Contains(err.Error(), s.Addr()) {
		t.Errorf("got %v, %v", other, err)
	}
}

// Shutdown gives the address back, also when nothing was ever served on it.
func TestShutdownFreesTheAddress(t *testing.T) {
	for name, served := range map[string]bool{"served": true, "never served": false} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, func(http.ResponseWriter, *http.Request) {})
			if served {
				s.Serve()
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c, err := net.Dial("tcp", s.Addr()); err == nil {
				c.Close()
				t.Error("somebody still listens")
			}
			select {
			case err := <-s.Failed():
				t.Errorf("a shutdown is no failure: %v", err)
			default:
			}
		})
	}
}

func TestOff(t *testing.T) {
	s, err := Listen(Options{HTTP: "off"})
	if err != nil || s.Addr() != "" {
		t.Fatalf("got %v, %v", s, err)
	}
	s.Serve()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// busy starts a request whose handler waits, and returns when it does.
func busy(t *testing.T, h2 bool) (s *Server, finish chan struct{}, answered chan error) {
	t.Helper()
	started := make(chan struct{})
	finish, answered = make(chan struct{}), make(chan error, 1)
	s = listen(t, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		select {
		case <-finish:
		case <-r.Context().Done():
		}
	})
	s.Serve()
	c := client(t, h2)
	go func() {
		resp, err := c.Get("http://" + s.Addr())
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()
	<-started
	return s, finish, answered
}

// Requests in flight are finished.
func TestShutdownWaits(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s, finish, answered := busy(t, h2)
			down := make(chan error)
			go func() { down <- s.Shutdown(context.Background()) }()
			for { // the listener is closed before the waiting begins
				c, err := net.Dial("tcp", s.Addr())
				if err != nil {
					break
				}
				c.Close()
			}
			select {
			case err := <-down:
				t.Fatalf("did not wait: %v", err)
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
}

// When the context ends, what is left is cut.
func TestShutdownCuts(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s, _, answered := busy(t, h2)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if err := <-answered; err == nil {
				t.Error("the request was answered")
			}
		})
	}
}

// A listener that gives up is reported.
func TestFailed(t *testing.T) {
	s := listen(t, func(http.ResponseWriter, *http.Request) {})
	s.listener.Close()
	s.Serve()
	if err := <-s.Failed(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
	s.Shutdown(t.Context())
}
