package server

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"time"
)

// bounded is a listener that refuses connections beyond the limits. For each connection that it
// accepts, it sets the size of the kernel's send buffer to writeBuffer.
type bounded struct {
	net.Listener
	connections *connections
	clear       bool // the listener is not encrypted, so a refused client can get a response
}

func (l bounded) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn := c.(*net.TCPConn) // all listeners are TCP listeners
		place, ok := l.connections.take(conn.RemoteAddr())
		if !ok {
			l.refuse(conn)
			continue
		}
		conn.SetWriteBuffer(writeBuffer)
		n := &counted{TCPConn: conn, place: place}
		place.hold(n)
		place.rest(time.Now())
		return n, nil
	}
}

// full is the response to a client whose connection is refused.
const full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Type: text/plain\r\n" +
	"Content-Length: 45\r\n\r\nThis server has no room for more connections\n"

// refuse closes a connection. On a cleartext listener it first sends a response. The response may
// not reach the client, because closing a connection with an unread request resets the connection.
// The write never blocks, because the send buffer of a new connection is empty.
func (l bounded) refuse(c *net.TCPConn) {
	if l.clear {
		c.Write([]byte(full))
	}
	c.Close()
}

// counted is a connection that counts towards the limits until it is closed. The field place is the
// connection's record, or nil if there is no limit.
type counted struct {
	*net.TCPConn
	place  *place
	yields bool // the connection speaks HTTP/2 over TLS; see Write
}

// Write writes p. For HTTP/2 over TLS, it lets other goroutines run first, as replayed.Write does
// for HTTP/2 without TLS.
func (c *counted) Write(p []byte) (int, error) {
	if c.yields {
		runtime.Gosched()
	}
	return c.TCPConn.Write(p)
}

func (c *counted) Close() error {
	err := c.TCPConn.Close()
	c.place.leave()
	return err
}

// Evict implements loop.Holder.
func (c *counted) Evict() { c.Close() }

// placeIn returns the record of a connection, or nil if it has none.
func placeIn(c net.Conn) *place {
	if n := countedIn(c); n != nil {
		return n.place
	}
	return nil
}

// countedIn returns the *counted that a connection is or wraps, or nil if there is none.
func countedIn(c net.Conn) *counted {
	for {
		switch n := c.(type) {
		case *counted:
			return n
		case *replayed:
			c = n.Conn
		case replayedTLS:
			c = n.Conn
		case interface{ NetConn() net.Conn }: // *tls.Conn, *loop.Session and the connection inside it
			c = n.NetConn()
		default:
			return nil
		}
	}
}

type placeKey struct{}

// withPlace adds the record of a connection to the context of its requests. The method
// patience.ServeHTTP needs the record.
func withPlace(ctx context.Context, c net.Conn) context.Context {
	if p := placeIn(c); p != nil {
		return context.WithValue(ctx, placeKey{}, p)
	}
	return ctx
}

// watch is called by net/http when the state of a connection changes. It records whether the
// connection is in use or idle. It cannot refuse a request, so it ignores the result of the method
// begin. If a request must be refused, patience.ServeHTTP does so.
func watch(c net.Conn, s http.ConnState) {
	switch s {
	case http.StateActive:
		placeIn(c).begin()
	case http.StateIdle:
		placeIn(c).rest(time.Now())
	}
}
