package server

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// connections bounds how many there are: of all listeners together, so that the process never runs out of file handles
// that it needs for its data, and of one address, so that nobody keeps everybody else out.
type connections struct {
	most   func() int            // nil: without bound
	exempt func(netip.Addr) bool // addresses that stand for many: proxies; nil: none
	logger *slog.Logger

	mu    sync.Mutex
	bound int       // what most said
	asked time.Time // and when
	open  int
	of    map[netip.Addr]int

	refused int       // since it was logged
	said    time.Time // when that was
}

const (
	boundAge  = time.Second // most may be dear, and changes slowly
	complaint = 10 * time.Second
)

func newConnections(o Options) *connections {
	return &connections{most: o.Connections, exempt: o.Proxy, logger: o.Logger, of: make(map[netip.Addr]int)}
}

// take counts a connection from an address, if there may be one more. Who got true gives it back.
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
	// Half of all is more than one machine needs, and leaves the other half to the rest of the world.
	share := c.bound - c.bound/2
	crowded := c.of[p] >= share && !(c.exempt != nil && c.exempt(p))
	if c.open < c.bound && !crowded {
		c.open++
		c.of[p]++
		return true
	}
	c.refused++
	if now.Sub(c.said) >= complaint {
		c.logger.Warn("connections are refused: there are as many as there may be", "open", c.open, "most", c.bound,
			"address", p.String(), "of_address", c.of[p], "most_of_address", share, "refused", c.refused)
		c.refused, c.said = 0, now
	}
	return false
}

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

// placeOf is what counts as one address: for IPv6 a /64, since whoever has one address there has them all.
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

// bounded is a listener that refuses connections beyond the bound, and keeps the kernel from holding megabytes for a client
// that reads nothing.
type bounded struct {
	net.Listener
	connections *connections
	clear       bool // in clear text: who is refused can be told
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

// full is what a client is told whose connection is one too many.
const full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Type: text/plain\r\n" +
	"Content-Length: 45\r\n\r\nThis server has no room for more connections\n"

// refuse closes a connection, with a word for those who get to read it. It never waits: a new connection has room for that.
func (l bounded) refuse(c *net.TCPConn) {
	if l.clear {
		c.Write([]byte(full))
	}
	c.Close()
}

// counted is a connection that is given back when it is closed.
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
