// Package server is the network side of the service: listeners, TLS, HTTP/1.1 to HTTP/3, timeouts,
// connection limits and draining. It serves any http.Handler. Of the other packages of Weir it uses
// only its own event loops and package shrink.
package server

import (
	"cmp"
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

// Options are the addresses and limits of a server.
type Options struct {
	HTTP     string // address for HTTP/1.1 and cleartext HTTP/2; "off" disables it
	HTTPFlag string // name of the flag that HTTP was set with, for error texts; empty means --http
	HTTPS    string // address for HTTP/1.1 and HTTP/2 over TLS, and for HTTP/3 (UDP); "off" disables it
	Logger   *slog.Logger

	// Connections returns the current limit for open connections, for all protocols together.
	// No client address gets all of them. The server calls Connections at most once per
	// second. If Connections is nil, there is no limit.
	Connections func() int

	// Window limits, for each HTTP/2 or HTTP/3 connection, the bytes that the client has sent and
	// no handler has read yet. These bytes are in memory and belong to no budget, so Window times
	// Connections limits the memory that they take. Zero means a default that is made for speed.
	Window int

	// Proxy reports whether an address is a proxy. A proxy may use all connections, because many
	// clients connect through it. If Proxy is nil, no address is a proxy.
	Proxy func(netip.Addr) bool

	// NetHTTPOnly makes the server serve all connections through net/http. Otherwise, on Linux,
	// event loops serve plain requests over HTTP/1.1 and HTTP/2, with and without TLS.
	NetHTTPOnly bool

	// HTTPSMayFail makes Listen log a warning, instead of returning an error, if the HTTPS address
	// is in use. It has no effect if HTTP is disabled.
	HTTPSMayFail bool
}

// Server serves one handler on up to three listeners. Call Listen, then Serve, then Shutdown, each
// once.
type Server struct {
	http   *tcp // cleartext listener; nil if disabled
	https  *tcp // TLS listener; nil if disabled
	http3  *udp // HTTP/3 listener; nil if disabled or not available
	within *connections
	logger *slog.Logger
	failed chan error
	work   sync.WaitGroup

	oversized http.Handler // answers requests with large header fields
}

// Listen binds the addresses. From then on clients can connect; their requests are handled after
// Serve is called. If Listen returns an error, no address stays bound.
func Listen(o Options) (*Server, error) {
	within := newConnections(o)
	s := &Server{failed: make(chan error, 2), logger: o.Logger, within: within, oversized: http.HandlerFunc(oversized)}
	if o.HTTP != "off" {
		l, err := net.Listen("tcp", o.HTTP)
		if err != nil {
			return nil, fmt.Errorf("listen on %s (%s): %w", o.HTTP, cmp.Or(o.HTTPFlag, "--http"), err)
		}
		s.http = newTCP(l, within, &o)
	}
	if o.HTTPS == "off" {
		return s, nil
	}
	l, socket, err := listenBoth(o.HTTPS)
	switch {
	case l == nil && o.HTTPSMayFail && s.http != nil && errors.Is(err, syscall.EADDRINUSE):
		o.Logger.Warn("HTTPS disabled: its address is in use; set --https to another address or to off", "address", o.HTTPS)
		return s, nil
	case l == nil:
		if s.http != nil {
			s.http.listener.Close()
		}
		return nil, fmt.Errorf("listen on %s (--https): %w", o.HTTPS, err)
	case err != nil:
		o.Logger.Warn("HTTP/3 disabled: its UDP port cannot be used (--https)", "address", l.Addr().String(), "error", err)
	default:
		s.http3 = newUDP(socket, within, &o)
	}
	s.https = newTCP(l, within, &o)
	return s, nil
}

// portAttempts is the number of attempts to find a port that is free for both TCP and UDP, if the
// operating system chooses the port.
const portAttempts = 20

// listenBoth listens on an address for TCP and for UDP, with the same port number. If UDP fails and
// TCP does not, it returns the TCP listener and the error of UDP.
func listenBoth(address string) (net.Listener, *net.UDPConn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	tries := 1
	if port == "0" {
		tries = portAttempts
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

// HTTP returns the address of the cleartext listener, or "" if it is disabled.
func (s *Server) HTTP() string { return s.http.addr() }

// HTTPS returns the address of the TLS listener, or "" if it is disabled.
func (s *Server) HTTPS() string { return s.https.addr() }

// Oversized sets the handler of requests whose target and header fields are larger than 16 KiB. The
// handler should send 431. The default handler sends 431 too. Call Oversized before Serve.
//
// The server calls the handler for sizes up to 32 KiB. For larger requests net/http and http3 send
// their own 431. Cleartext HTTP/1.1 is the exception: there the server calls the handler at any
// size. Above 32 KiB it passes a request that has only the client's address, because net/http has
// parsed nothing.
func (s *Server) Oversized(h http.Handler) { s.oversized = h }

// Serve starts serving and returns immediately. If a listener fails later, the channel that Failed
// returns receives the error. The parameter t is ignored if HTTPS is disabled.
func (s *Server) Serve(h http.Handler, t TLS) {
	if s.http != nil {
		clear := s.http.serve(h, s.oversized, nil)
		s.work.Go(func() { s.report(clear()) })
	}
	if s.https == nil {
		return
	}
	if t.Strict {
		h = strict(h)
	}
	secure, announced := t.config(), h
	if s.http3 != nil {
		if err := s.http3.listen(h, s.oversized, secure, t.ResetKey); err != nil {
			s.logger.Warn("HTTP/3 disabled (--https)", "error", err)
		} else {
			s.work.Go(s.http3.serve)
			announced = s.http3.announce(h)
		}
	}
	encrypted := s.https.serve(announced, s.oversized, secure)
	s.work.Go(func() { s.report(encrypted()) })
}

func (s *Server) report(err error) {
	if err != nil {
		s.failed <- err
	}
}

// Connections returns the number of open connections, their limit, and how many connections were
// refused, or closed to make room for others, because of the limit.
func (s *Server) Connections() Counts { return s.within.read() }

// Failed returns a channel that receives the error of each listener that stopped serving. A failure
// of HTTP/3 is not reported there, because the service continues without HTTP/3.
func (s *Server) Failed() <-chan error { return s.failed }

// Shutdown stops accepting connections and waits for requests in flight, on all listeners at the
// same time. If the context ends first, Shutdown cuts off the remaining requests and returns an
// error. In either case the addresses are free afterwards.
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
