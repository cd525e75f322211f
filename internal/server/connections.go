package server

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// connections limits the number of connections. The limit for all listeners together keeps the
// process from running out of the file handles that it needs for its data.
//
// Within the limit, addresses share (D34). While more than a quarter is free, any address may
// connect. The last quarter is for addresses that have less than a fair share of the connections,
// and not more than are left. An address that has its share closes its own connection that has been
// idle longest, to open another one. If all connections are in use, a new one takes the place of the
// one that has been idle longest, unless its address has fewer connections. A few connections are
// only for this machine, so that its operator can always connect.
type connections struct {
	most   func() int            // limit for all connections; nil if there is none
	exempt func(netip.Addr) bool // proxies, which stand for many clients and need no share; nil if none
	least  time.Duration         // idle time after which a connection may be closed for another
	logger *slog.Logger

	mu    sync.Mutex
	bound int       // last result of most
	asked time.Time // when most was called
	open  int
	of    map[netip.Addr]*address // by the result of placeOf
	idle  idlest                  // of all addresses

	refused int       // since the last log entry
	said    time.Time // time of the last log entry
	counts  Counts
}

// Counts describe the connections of a server.
type Counts struct {
	Open, Limit int
	Refused     uint64 // connections refused because of the limits
	Replaced    uint64 // idle connections closed to make room for others
}

// address is an address with open connections.
type address struct {
	places map[*place]struct{}
	idle   idlest
}

// place is an open connection. The methods of a nil place do nothing.
type place struct {
	at   netip.Addr
	gone bool // it does not count any more; guarded by connections.mu

	// since is when the connection became idle, in nanoseconds since this process started, or one of
	// the values below.
	since atomic.Int64
	close atomic.Pointer[func()] // nil if the connection cannot be closed yet
}

const (
	inUse    = 0
	replaced = -1 // it is being closed to make room
)

const (
	boundAge  = time.Second      // time between calls to most, which may be slow
	complaint = 10 * time.Second // time between log entries about refused connections
	idleLeast = time.Second
)

// begin notes that a request has begun. It returns false if the connection is being closed to make
// room: then the request must not be answered, or its client could not tell what became of it.
func (p *place) begin() bool {
	for p != nil {
		v := p.since.Load()
		if v == replaced {
			return false
		}
		if p.since.CompareAndSwap(v, inUse) {
			break
		}
	}
	return true
}

// rest notes that the connection has no request.
func (p *place) rest(now time.Time) {
	if p != nil {
		p.since.CompareAndSwap(inUse, int64(now.Sub(started))+1)
	}
}

func newConnections(o Options) *connections {
	return &connections{most: o.Connections, exempt: o.Proxy, least: idleLeast, logger: o.Logger, of: make(map[netip.Addr]*address)}
}

// take counts a connection from an address. It returns nil and false if that is not within the
// limits. Otherwise the caller must call give when the connection is closed. The connection is busy
// until rest is called.
func (c *connections) take(from net.Addr) (*place, bool) {
	if c.most == nil {
		return nil, true
	}
	p := &place{at: placeOf(from)}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.IsZero() || now.Sub(c.asked) >= boundAge {
		c.bound, c.asked = c.most(), now
	}
	if !c.hasRoom(p.at) && !c.makeRoom(p.at, now) {
		c.refuse(p.at, now)
		return nil, false
	}
	a := c.of[p.at]
	if a == nil {
		a = &address{places: make(map[*place]struct{})}
		c.of[p.at] = a
	}
	a.places[p] = struct{}{}
	c.open++
	return p, true
}

// limit is the number of connections that an address can reach together with all others. The
// reserve for this machine is small, so that it takes next to nothing from others.
func (c *connections) limit(at netip.Addr) int {
	if at.IsLoopback() {
		return c.bound
	}
	return c.bound - min(c.bound/32, 16)
}

// hasRoom reports whether an address may connect while the others stay.
func (c *connections) hasRoom(at netip.Addr) bool {
	free := c.limit(at) - c.open
	return free > 0 && (free > c.bound/4 || c.isProxy(at) || c.isLight(at, free))
}

func (c *connections) isProxy(at netip.Addr) bool { return c.exempt != nil && c.exempt(at) }

// isLight reports whether an address has less than a fair share of the open connections, and not
// more than the number that is free.
func (c *connections) isLight(at netip.Addr, free int) bool {
	n := c.of[at].count()
	return n == 0 || n*len(c.of) < c.open && n <= free
}

func (a *address) count() int {
	if a == nil {
		return 0
	}
	return len(a.places)
}

// makeRoom closes the connection that has been idle longest, so that the address can connect: of
// any address that has no fewer connections if all are in use, otherwise of the same address.
func (c *connections) makeRoom(at netip.Addr, now time.Time) bool {
	before := int64(now.Sub(started)-c.least) + 1
	own := c.of[at]
	var victim *place
	if c.limit(at) > c.open || !c.isProxy(at) && !c.isLight(at, c.bound) {
		if own != nil {
			victim = own.idle.longest(now, before, func(visit func(*place)) {
				for p := range own.places {
					visit(p)
				}
			}, func(*place) bool { return true })
		}
	} else {
		victim = c.idle.longest(now, before, func(visit func(*place)) {
			for _, a := range c.of {
				for p := range a.places {
					visit(p)
				}
			}
		}, func(p *place) bool { return c.of[p.at].count() >= own.count() })
	}
	if victim == nil {
		return false
	}
	c.remove(victim)
	c.counts.Replaced++
	go (*victim.close.Load())() // not with the lock held, because it calls give
	return true
}

func (c *connections) refuse(at netip.Addr, now time.Time) {
	c.refused++
	c.counts.Refused++
	if now.Sub(c.said) >= complaint {
		c.logger.Warn("connections refused: limit reached", "open", c.open, "most", c.bound,
			"address", at.String(), "of_address", c.of[at].count(), "refused", c.refused)
		c.refused, c.said = 0, now
	}
}

// give releases a connection that take counted. It may be called more than once.
func (c *connections) give(p *place) {
	if p == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(p)
}

func (c *connections) remove(p *place) {
	if p.gone {
		return
	}
	p.gone = true
	c.open--
	a := c.of[p.at]
	if delete(a.places, p); len(a.places) == 0 {
		delete(c.of, p.at)
	}
}

// read returns the current counts.
func (c *connections) read() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most != nil && c.asked.IsZero() {
		c.bound, c.asked = c.most(), time.Now()
	}
	n := c.counts
	n.Open, n.Limit = c.open, c.bound
	return n
}

// idlest finds the connections that have been idle longest. Looking at all of them for every new
// connection would be slow, so it remembers the best from one look to the next.
type idlest struct {
	best   []idler // the longest idle last
	looked time.Time
}

type idler struct {
	*place
	since int64
}

const (
	mostIdlers = 256
	lookAgain  = 100 * time.Millisecond // the least time between two looks
)

// longest returns a connection that may be closed and has been idle since before, and marks it. It
// returns nil if there is none.
func (l *idlest) longest(now time.Time, before int64, each func(func(*place)), may func(*place) bool) *place {
	for {
		for n := len(l.best); n > 0; n-- {
			p := l.best[n-1]
			l.best = l.best[:n-1]
			if !p.gone && may(p.place) && p.place.since.CompareAndSwap(p.since, replaced) {
				return p.place
			}
		}
		if now.Sub(l.looked) < lookAgain {
			return nil
		}
		l.looked = now
		each(func(p *place) {
			if v := p.since.Load(); v > 0 && v <= before && p.close.Load() != nil && may(p) {
				l.add(idler{p, v})
			}
		})
	}
}

// add inserts a connection in order, if it is among the best.
func (l *idlest) add(p idler) {
	if len(l.best) == mostIdlers {
		if p.since >= l.best[0].since {
			return
		}
		l.best = slices.Delete(l.best, 0, 1)
	}
	i, _ := slices.BinarySearchFunc(l.best, p, func(a, b idler) int { return int(min(1, max(-1, b.since-a.since))) })
	l.best = slices.Insert(l.best, i, p)
}

// placeOf returns the key under which connections from an address are counted. For IPv6 it is the
// /64 prefix, because a client usually controls a whole /64. The machine itself stays ::1.
func placeOf(a net.Addr) netip.Addr {
	var at netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		at = a.AddrPort()
	case *net.UDPAddr:
		at = a.AddrPort()
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() && !addr.IsLoopback() {
		if p, err := addr.Prefix(64); err == nil {
			addr = p.Addr()
		}
	}
	return addr
}
