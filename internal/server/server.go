// Package server is the wire: listeners, timeouts and draining. It takes an http.Handler and knows nothing of ours.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options are what a server listens on, and how.
type Options struct {
	HTTP    string // address for HTTP/1.1 and cleartext HTTP/2; "off" for none
	Handler http.Handler
	Logger  *slog.Logger
}

// The bounds of a connection. There is no overall write timeout: a subscription is one endless answer, and bounds each
// write by itself.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
	maxStreams        = 1000 // of one HTTP/2 connection
	writeBuffer       = 64 << 10
)

// Server is a set of listeners with one handler behind them.
type Server struct {
	http     *http.Server
	quick    *quick
	listener net.Listener
	failed   chan error
	work     sync.WaitGroup
}

// Listen takes the addresses. Nothing is served before Serve.
func Listen(o Options) (*Server, error) {
	s := &Server{failed: make(chan error, 1)}
	if o.HTTP == "off" {
		return s, nil
	}
	l, err := net.Listen("tcp", o.HTTP)
	if err != nil {
		return nil, fmt.Errorf("listen on %s (--http): %w", o.HTTP, err)
	}
	s.listener = l
	s.quick = newQuick(o.Handler, o.Logger)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler: o.Handler, Protocols: &protocols, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: 20 * time.Second, PingTimeout: 15 * time.Second,
			WriteByteTimeout: 30 * time.Second,
		},
	}
	return s, nil
}

// bounded keeps the kernel from holding megabytes for a client that reads nothing.
type bounded struct{ net.Listener }

func (l bounded) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(writeBuffer)
	}
	return c, err
}

// Addr is the address of the HTTP listener; empty when it is off.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Serve begins to serve. What makes a listener fail comes out of Failed.
func (s *Server) Serve() {
	if s.http == nil {
		return
	}
	rest := s.quick.front(bounded{s.listener})
	s.work.Go(func() {
		if err := s.http.Serve(rest); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	})
}

// Failed reports that a listener gave up.
func (s *Server) Failed() <-chan error { return s.failed }

// Shutdown stops accepting and waits for requests in flight until the context ends; then it cuts them.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.http == nil {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	err = errors.Join(err, s.quick.shutdown(ctx))
	s.listener.Close() // http.Server closes only what it serves
	s.work.Wait()
	return err
}
