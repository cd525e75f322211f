package server

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/server/loop"
	"weir/internal/shrink"
)

// connections limits the number of connections. There is one limit for all listeners together, so
// that connections do not use up the file handles that the process needs for its data.
//
// Within the limit, client addresses share the connections (D34):
//
//   - While more than a quarter of the connections is free, any address may connect.
//   - While a quarter or less is free, an address may connect if it has less than a fair share (the
//     average of all addresses) of the open connections, and not more connections than are free.
//   - Any other address gets a new connection only in exchange for an old one: the server closes
//     the connection of the same address that has been idle longest.
//   - If all connections are taken and the address has less than a fair share, the server looks at
//     the addresses that have at least as many connections as this one. Of all their connections,
//     it closes the one that has been idle longest.
//
// A few connections are reserved for this machine, so that its operator can always connect.
type connections struct {
	getLimit func() int            // returns the limit for all connections; nil if there is no limit
	exempt   func(netip.Addr) bool // reports proxies, which may exceed a fair share; nil if there are none
	minIdle  time.Duration         // idle time after which a connection may be closed to make room
	logger   *slog.Logger

	mu    sync.Mutex
	bound int       // last result of getLimit
	asked time.Time // when the function getLimit was last called
	open  int
	of    shrink.Map[netip.Addr, *address] // by client address, as placeOf returns it
	idle  idlest                           // finds the connection that has been idle longest, among those of all addresses

	refused int       // connections refused since the last log entry
	said    time.Time // time of the last log entry
	counts  Counts
}

// Counts describe the connections of a server.
type Counts struct {
	Open, Limit int
	Refused     uint64 // connections refused because of the limits
	Replaced    uint64 // idle connections closed to make room for others
}

// address is a client address with its open connections.
type address struct {
	places shrink.Map[*place, struct{}]
	idle   idlest // finds the connection that has been idle longest, among those of this address
}

// place is the record of an open connection. A nil place stands for a connection that is not
// counted; its methods do nothing.
type place struct {
	of   *connections
	at   netip.Addr
	gone bool // the connection was removed from the count; guarded by of.mu

	// since is the time at which the connection became idle, in nanoseconds since this process
	// started. If the connection is not idle, the value is one of the constants inUse and replaced
	// below.
	since  atomic.Int64
	holder loop.Holder // closes the connection; nil if it cannot be closed yet; guarded by of.mu
}

const (
	inUse    = 0  // the connection has a request
	replaced = -1 // the connection is being closed to make room for another
)

// started is the time at which this process started.
var started = time.Now()

const (
	boundAge       = time.Second      // time between calls of getLimit, which may be slow
	complainAgain  = 10 * time.Second // time between log entries about refused connections
	defaultMinIdle = time.Second      // value of connections.minIdle in production
)

// begin records that a request has begun. It returns false if the connection is being closed to
// make room for another. The caller must then not handle the request: the client would not get the
// response, and could not tell whether the request took effect.
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

// hold sets what closes the connection to make room for another.
func (p *place) hold(by loop.Holder) {
	if p != nil {
		p.of.mu.Lock()
		p.holder = by
		p.of.mu.Unlock()
	}
}

// leave removes the connection from the count. It may be called more than once.
func (p *place) leave() {
	if p != nil {
		p.of.give(p)
	}
}

// isReplaced reports whether the connection is being closed to make room for another.
func (p *place) isReplaced() bool { return p != nil && p.since.Load() == replaced }

// rest records that the connection has no request.
func (p *place) rest(now time.Time) {
	if p != nil {
		p.since.CompareAndSwap(inUse, int64(now.Sub(started))+1)
	}
}

func newConnections(o Options) *connections {
	return &connections{getLimit: o.Connections, exempt: o.Proxy, minIdle: defaultMinIdle, logger: o.Logger}
}

// take adds a connection from an address to the count. It returns nil and false if the limits do
// not allow the connection. Otherwise the caller must call the method leave of the place when the
// connection is closed. The connection counts as in use until the method rest is called.
func (c *connections) take(from net.Addr) (*place, bool) {
	if c.getLimit == nil {
		return nil, true
	}
	p := &place{of: c, at: placeOf(from)}
	ok, complaint := c.admit(p, time.Now())
	if complaint != nil {
		c.logger.Warn("connections refused: limit reached", complaint...)
	}
	if !ok {
		return nil, false
	}
	return p, true
}

// admit adds p to the count if the limits allow it. If the log must say that connections are refused,
// admit returns what to say. It does not log itself, because the log may be slow, and event loops
// need the lock too.
func (c *connections) admit(p *place, now time.Time) (ok bool, complaint []any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.IsZero() || now.Sub(c.asked) >= boundAge {
		c.bound, c.asked = c.getLimit(), now
	}
	if !c.hasRoom(p.at) && !c.makeRoom(p.at, now) {
		return false, c.refuse(p.at, now)
	}
	a := c.of.Get(p.at)
	if a == nil {
		a = &address{}
		c.of.Set(p.at, a)
	}
	a.places.Set(p, struct{}{})
	c.open++
	return true, nil
}

// limit returns the maximum number of open connections, of all addresses together, that applies
// when this address connects. For addresses other than this machine, it excludes the small reserve
// for this machine.
func (c *connections) limit(at netip.Addr) int {
	if at.IsLoopback() {
		return c.bound
	}
	return c.bound - min(c.bound/32, 16)
}

// hasRoom reports whether an address may connect without another connection being closed.
func (c *connections) hasRoom(at netip.Addr) bool {
	free := c.limit(at) - c.open
	return free > 0 && (free > c.bound/4 || c.isProxy(at) || c.isLight(at, free))
}

func (c *connections) isProxy(at netip.Addr) bool { return c.exempt != nil && c.exempt(at) }

// isLight reports whether an address has less than a fair share of the open connections, and not
// more connections than are free.
func (c *connections) isLight(at netip.Addr, free int) bool {
	n := c.of.Get(at).count()
	return n == 0 || n*c.of.Len() < c.open && n <= free
}

func (a *address) count() int {
	if a == nil {
		return 0
	}
	return a.places.Len()
}

// makeRoom closes an idle connection, so that the address can connect, and reports whether it found
// one. If all connections are taken and the address has less than a fair share, makeRoom looks at
// the addresses that have at least as many connections as this one, and closes the one of their
// connections that has been idle longest. Otherwise it closes the connection of the same address
// that has been idle longest.
func (c *connections) makeRoom(at netip.Addr, now time.Time) bool {
	latest := int64(now.Sub(started)-c.minIdle) + 1
	own := c.of.Get(at)
	var victim *place
	if c.limit(at) > c.open || !c.isProxy(at) && !c.isLight(at, c.bound) {
		if own != nil {
			victim = own.idle.longest(now, latest, func(visit func(*place)) {
				for p := range own.places.All() {
					visit(p)
				}
			}, func(*place) bool { return true })
		}
	} else {
		victim = c.idle.longest(now, latest, func(visit func(*place)) {
			for _, a := range c.of.All() {
				for p := range a.places.All() {
					visit(p)
				}
			}
		}, func(p *place) bool { return c.of.Get(p.at).count() >= own.count() })
	}
	if victim == nil {
		return false
	}
	c.remove(victim)
	c.counts.Replaced++
	go victim.holder.Evict() // in a goroutine, because Evict may call give, which needs the lock that is held here
	return true
}

func (c *connections) refuse(at netip.Addr, now time.Time) (complaint []any) {
	c.refused++
	c.counts.Refused++
	if now.Sub(c.said) < complainAgain {
		return nil
	}
	complaint = []any{"open", c.open, "limit", c.bound, "address", at.String(), "of_address", c.of.Get(at).count(), "refused", c.refused}
	c.refused, c.said = 0, now
	return complaint
}

// give removes a connection from the count. It may be called more than once for the same
// connection.
func (c *connections) give(p *place) {
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
	a := c.of.Get(p.at)
	if a.places.Delete(p); a.places.Len() == 0 {
		c.of.Delete(p.at)
	}
}

// read returns the current counts.
func (c *connections) read() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.getLimit != nil && c.asked.IsZero() {
		c.bound, c.asked = c.getLimit(), time.Now()
	}
	n := c.counts
	n.Open, n.Limit = c.open, c.bound
	return n
}

// idlest finds the connections that have been idle longest. A search through all connections for
// every new connection would be slow, so idlest keeps the best candidates of a search for later
// calls.
type idlest struct {
	best   []idler   // candidates; the one that has been idle longest is last
	looked time.Time // time of the last search
}

type idler struct {
	*place
	since int64
}

const (
	mostIdlers = 256
	lookAgain  = 100 * time.Millisecond // minimum time between two searches
)

// longest returns the connection that has been idle longest, and marks it as replaced. It skips
// connections that became idle after the given latest time, and connections for which the function
// allowed returns false. It returns nil if no connection is left. The function forEach must call
// its argument for every connection.
func (l *idlest) longest(now time.Time, latest int64, forEach func(func(*place)), allowed func(*place) bool) *place {
	for {
		for n := len(l.best); n > 0; n-- {
			p := l.best[n-1]
			l.best = l.best[:n-1]
			if !p.gone && allowed(p.place) && p.place.since.CompareAndSwap(p.since, replaced) {
				return p.place
			}
		}
		if now.Sub(l.looked) < lookAgain {
			return nil
		}
		l.looked = now
		forEach(func(p *place) {
			if v := p.since.Load(); v > 0 && v <= latest && p.holder != nil && allowed(p) {
				l.add(idler{p, v})
			}
		})
	}
}

// add inserts a connection into the list best, in order, if it is among the mostIdlers connections
// that have been idle longest.
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

// placeOf returns the address under which connections from the address a are counted. For IPv6 this
// is the /64 prefix, because a client usually controls a whole /64. The loopback address ::1 stays
// as it is.
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
