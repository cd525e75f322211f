package client

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
)

// single is the transport of a publisher over cleartext HTTP/2. It has one connection, and opens
// another when this connection takes no more requests. http.Transport would do the same, but it
// would look up the connection and wrap the body and the context for every request. For small
// batches, that would be a tenth of the client's work.
type single struct {
	transport *http.Transport // dials the connections
	address   string          // host and port of the service

	mu   sync.Mutex
	conn *http.ClientConn   // the connection for the next request; nil if there is none
	raw  net.Conn           // the connection below conn
	old  []*http.ClientConn // connections that take no more requests, but may still have requests in flight
	over bool               // CloseIdleConnections was called
}

// newSingle returns a transport for the service at the address, which must have a port.
func newSingle(t *http.Transport, address string) *single {
	s := &single{transport: t, address: address}
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (_ net.Conn, err error) {
		s.raw, err = dial(ctx, network, address) // only the method get dials, and it holds s.mu
		return s.raw, err
	}
	return s
}

// RoundTrip sends a request over the connection.
func (s *single) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	for {
		conn, raw, fresh, err := s.get(r.Context())
		if err != nil {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, err
		}
		trace.GotConn(httptrace.GotConnInfo{Conn: raw})
		resp, err := conn.RoundTrip(r)
		if err == nil {
			return resp, nil
		}
		// If the connection takes no more requests, net/http has not sent this one. It has no error
		// value for this case, only a text.
		unused := strings.Contains(err.Error(), "http2: client conn not usable")
		if unused || conn.Err() != nil {
			s.drop(conn)
		}
		if !unused || fresh {
			return nil, err // the caller pauses before it tries again
		}
	}
}

// get returns the connection. If there is none, get opens one, and fresh is true.
func (s *single) get(ctx context.Context) (_ *http.ClientConn, _ net.Conn, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, nil, false, net.ErrClosed
	}
	if fresh = s.conn == nil; fresh {
		conn, err := s.transport.NewClientConn(ctx, "http", s.address)
		if err != nil {
			return nil, nil, true, err
		}
		s.conn = conn
	}
	return s.conn, s.raw, fresh, nil
}

// drop makes get open another connection. Requests in flight over conn continue.
func (s *single) drop(conn *http.ClientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != conn {
		return
	}
	s.conn = nil
	s.old = slices.DeleteFunc(append(s.old, conn), func(c *http.ClientConn) bool { return c.Err() != nil })
}

// CloseIdleConnections closes all connections for good. The publisher calls it when it has no
// requests in flight, or when the service does not speak cleartext HTTP/2.
func (s *single) CloseIdleConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.conn != nil {
		s.old = append(s.old, s.conn)
	}
	for _, c := range s.old {
		c.Close()
	}
	s.conn, s.old = nil, nil
}
