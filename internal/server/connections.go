package server

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// connections limits the number of connections. The limit for all listeners together keeps the
// process from running out of the file handles that it needs for its data. The limit for one
// address keeps one client from locking out all others.
type connections struct {
	most   func() int            // limit for all connections; nil if there is none
	exempt func(netip.Addr) bool // proxies, which stand for many clients; nil if none
	logger *slog.Logger

	mu    sync.Mutex
	bound int       // last result of most
	asked time.Time // when most was called
	open  int
	of    map[netip.Addr]int // open connections by address, as returned by placeOf

	refused int       // since the last log entry
	said    time.Time // time of the last log entry
}

const (
	boundAge  = time.Second      // time between calls to most, which may be slow
	complaint = 10 * time.Second // time between log entries about refused connections
)

func newConnections(o Options) *connections {
	return &connections{most: o.Connections, exempt: o.Proxy, logger: o.Logger, of: make(map[netip.Addr]int)}
}

// take counts a connection from an address and reports whether it is within the limits. If it
// returns true, the caller must call give exactly once when the connection is closed.
func (c *connections) take(from net.Addr) bool {
	if c.most == nil {
		return true
	}
	p := placeOf(from)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.IsZero() || now.Sub(c.asked) >= boundAge {
		c.bound, c.asked = c.most(), now
	}
	// Half of all connections is more than one client needs, and leaves the other half to all
	// others.
	share := c.bound - c.bound/2
	crowded := c.of[p] >= share && !(c.exempt != nil && c.exempt(p))
	if c.open < c.bound && !crowded {
		c.open++
		c.of[p]++
		return true
	}
	c.refused++
	if now.Sub(c.said) >= complaint {
		c.logger.Warn("connections refused: limit reached", "open", c.open, "most", c.bound,
			"address", p.String(), "of_address", c.of[p], "most_of_address", share, "refused", c.refused)
		c.refused, c.said = 0, now
	}
	return false
}

// give releases a connection that take counted.
func (c *connections) give(from net.Addr) {
	if c.most == nil {
		return
	}
	p := placeOf(from)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.of[p]--; c.of[p] == 0 {
		delete(c.of, p)
	}
}

// placeOf returns the key under which connections from an address are counted. For IPv6 it is the
// /64 prefix, because a client usually controls a whole /64.
func placeOf(a net.Addr) netip.Addr {
	var at netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		at = a.AddrPort()
	case *net.UDPAddr:
		at = a.AddrPort()
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			addr = p.Addr()
		}
	}
	return addr
}

// bounded is a listener that refuses connections beyond the limits, and sets the send buffer of the
// others to writeBuffer.
type bounded struct {
	net.Listener
	connections *connections
	clear       bool // cleartext listener: a refused client gets a response
}

func (l bounded) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn, ok := c.(*net.TCPConn)
		if !ok {
			return c, nil
		}
		if !l.connections.take(conn.RemoteAddr()) {
			l.refuse(conn)
			continue
		}
		conn.SetWriteBuffer(writeBuffer)
		return &counted{TCPConn: conn, connections: l.connections}, nil
	}
}

// full is the response to a client whose connection is refused.
const full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Type: text/plain\r\n" +
	"Content-Length: 45\r\n\r\nThis server has no room for more connections\n"

// refuse closes a connection. On a cleartext listener it first sends a response. The client may
// lose it, because closing with an unread request resets the connection. Writing never blocks: the
// send buffer of a new connection is empty.
func (l bounded) refuse(c *net.TCPConn) {
	if l.clear {
		c.Write([]byte(full))
	}
	c.Close()
}

// counted is a connection that calls give when it is closed for the first time.
type counted struct {
	*net.TCPConn
	connections *connections
	once        sync.Once
}

func (c *counted) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() { c.connections.give(c.RemoteAddr()) })
	return err
}
