// Package server is the wire: listeners, TLS, HTTP/1.1 to HTTP/3, timeouts and draining. It takes an http.Handler and knows
// nothing of ours.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
)

// Options are what a server listens on.
type Options struct {
	HTTP   string // address for HTTP/1.1 and cleartext HTTP/2; "off" for none
	HTTPS  string // address for HTTP/1.1 and HTTP/2 over TLS, and HTTP/3 on the same number; "off" for none
	Logger *slog.Logger

	// Connections is how many there may be at this moment, of all kinds together; one address gets half of them. It is asked
	// at most once a second. Nil: without bound.
	Connections func() int

	// Proxy tells of addresses that may have all connections. Nil: there are none.
	Proxy func(netip.Addr) bool

	// HTTPSMayFail makes an address for HTTPS that is taken a warning, as long as there is HTTP.
	HTTPSMayFail bool
}

// Server is a set of listeners with one handler behind them.
type Server struct {
	http   *tcp // nil: off
	https  *tcp // nil: off
	http3  *udp // nil: off
	logger *slog.Logger
	failed chan error
	work   sync.WaitGroup
}

// Listen takes the addresses. Nothing is served before Serve.
func Listen(o Options) (*Server, error) {
	s := &Server{failed: make(chan error, 2), logger: o.Logger}
	within := newConnections(o)
	if o.HTTP != "off" {
		l, err := net.Listen("tcp", o.HTTP)
		if err != nil {
			return nil, fmt.Errorf("listen on %s (--http): %w", o.HTTP, err)
		}
		s.http = newTCP(l, within, o.Logger)
	}
	if o.HTTPS == "off" {
		return s, nil
	}
	l, socket, err := listenBoth(o.HTTPS)
	switch {
	case l == nil && o.HTTPSMayFail && s.http != nil && errors.Is(err, syscall.EADDRINUSE):
		o.Logger.Warn("there is no HTTPS: its address is taken. Set --https to another one, or to off", "address", o.HTTPS)
		return s, nil
	case l == nil:
		if s.http != nil {
			s.http.listener.Close()
		}
		return nil, fmt.Errorf("listen on %s (--https): %w", o.HTTPS, err)
	case err != nil:
		o.Logger.Warn("there is no HTTP/3: its UDP port cannot be used (--https)", "address", l.Addr().String(), "error", err)
	default:
		s.http3 = newUDP(socket, within, o.Logger)
	}
	s.https = newTCP(l, within, o.Logger)
	return s, nil
}

// ports is how many free TCP ports are tried for one whose number is free for UDP too.
const ports = 20

// listenBoth listens for TCP, and for UDP on the same address. The error beside a listener is why there is no socket.
func listenBoth(address string) (net.Listener, *net.UDPConn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	tries := 1
	if port == "0" {
		tries = ports
	}
	for {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, nil, err
		}
		at := l.Addr().(*net.TCPAddr)
		socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: at.IP, Port: at.Port, Zone: at.Zone})
		if tries--; err == nil || tries == 0 || !errors.Is(err, syscall.EADDRINUSE) {
			return l, socket, err
		}
		l.Close()
	}
}

// HTTP is the address of the clear text listener; empty when it is off.
func (s *Server) HTTP() string { return s.http.addr() }

// HTTPS is the address of the TLS listener; empty when it is off.
func (s *Server) HTTPS() string { return s.https.addr() }

// Serve begins to serve. What makes a listener fail comes out of Failed. Without HTTPS there is no need for TLS.
func (s *Server) Serve(h http.Handler, t TLS) {
	if s.http != nil {
		clear := s.http.serve(h, nil)
		s.work.Go(func() { s.report(clear()) })
	}
	if s.https == nil {
		return
	}
	secure, announced := t.config(), h
	if s.http3 != nil {
		if err := s.http3.listen(h, secure, t.ResetKey); err != nil {
			s.logger.Warn("there is no HTTP/3 (--https)", "error", err)
		} else {
			s.work.Go(s.http3.serve)
			announced = s.http3.announce(h)
		}
	}
	encrypted := s.https.serve(announced, secure)
	s.work.Go(func() { s.report(encrypted()) })
}

func (s *Server) report(err error) {
	if err != nil {
		s.failed <- err
	}
}

// Failed reports that a listener gave up.
func (s *Server) Failed() <-chan error { return s.failed }

// Shutdown stops accepting and waits for requests in flight until the context ends; then it cuts them, which is an error.
func (s *Server) Shutdown(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, 3)
	for i, t := range []*tcp{s.http, s.https} {
		if t != nil {
			all.Go(func() { errs[i] = t.shutdown(ctx) })
		}
	}
	if s.http3 != nil {
		all.Go(func() { errs[2] = s.http3.shutdown(ctx) })
	}
	all.Wait()
	s.work.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
