package access

import (
	"hash/maphash"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/meter"
)

// Limits are requests a minute; 0 is unlimited (D23).
type Limits struct {
	Live      int // of each live key
	Test      int // of each test key
	Demo      int // of each client address that reads the demo, with the demo key or without one
	Anonymous int // of each client address, for requests without a valid key
}

// DefaultLimits are those of a server that nobody configured.
var DefaultLimits = Limits{Live: 600_000, Test: 6_000, Demo: 60, Anonymous: 6_000}

// Unlimited is the limit, and what remains of it, where there is none.
const Unlimited = math.MaxInt32

// Window is the state of a caller's rate window.
type Window struct {
	Limit      int
	Remaining  int   // never negative
	Reset      int64 // Unix time, in seconds, at which the window ends
	Allowed    bool  // the request may go on
	RetryAfter int   // seconds until Reset, at least 1
	At         int64 // when that was, by the meter: who wants to know later how long something took need not ask again
}

// window is how long windows are, in seconds.
const window = 60

// counter is the window of one caller: the second in which it began, above countBits of requests. One word, so that
// the count is exact under any concurrency without a lock.
//
// A window begins with the first request after the one before has ended, at the full second, and not with the minute:
// so a caller's first minute is a whole one, and callers do not all come back at once.
type counter struct{ state atomic.Uint64 }

const (
	countBits = 31 // the rest holds seconds until the year 2242
	countMask = 1<<countBits - 1
)

// take counts a request if the limit allows it and count is set. The clock is read after the state: so nobody who was
// held up in between takes a window that others have begun meanwhile for one of the future, and replaces it.
func (c *counter) take(limit int, now func() time.Time, count bool) Window {
	for {
		old := c.state.Load()
		at := now()
		next, w := advance(old, limit, at.Unix(), count)
		if next == old || c.state.CompareAndSwap(old, next) {
			w.At = meter.At(at)
			return w
		}
	}
}

// advance is the rule of windows: the state after a request at second now, and what its caller is told.
func advance(state uint64, limit int, now int64, count bool) (uint64, Window) {
	begun, n := int64(state>>countBits), int(state&countMask)
	// A clock that steps back a little stays in its window; one that steps back further must not lock anybody out.
	if now >= begun+window || now <= begun-window {
		begun, n = now, 0
	}
	w := Window{Limit: limit, Reset: begun + window, Allowed: true}
	if limit == 0 {
		w.Limit, w.Remaining = Unlimited, Unlimited
	} else {
		w.Allowed = n < limit
		if count && w.Allowed {
			n++
		}
		w.Remaining = max(0, limit-n)
	}
	w.RetryAfter = int(max(1, w.Reset-now))
	if count {
		state = uint64(begun)<<countBits | uint64(n)
	}
	return state, w
}

// windows are the limits, and the windows that are counted by address. Those of keys are in their grants.
type windows struct {
	live, test, demo, anonymous atomic.Int64
	demoClients                 clients
	anonymousClients            clients
}

func (w *windows) init() {
	w.demoClients.seed = maphash.MakeSeed()
	w.anonymousClients.seed = maphash.MakeSeed()
}

// SetLimits changes the limits from the next request on; what was counted in a running window stays counted.
func (a *Access) SetLimits(l Limits) error {
	for _, n := range []int{l.Live, l.Test, l.Demo, l.Anonymous} {
		if n < 0 || n > Unlimited {
			return weir.Errorf(weir.InvalidRequest, "a rate limit is 0 (unlimited) to %d requests a minute, not %d", Unlimited, n)
		}
	}
	a.windows.live.Store(int64(l.Live))
	a.windows.test.Store(int64(l.Test))
	a.windows.demo.Store(int64(l.Demo))
	a.windows.anonymous.Store(int64(l.Anonymous))
	return nil
}

// Take counts a request against the window of its caller: that of the key; that of the client's address for a demo
// caller; that of the client's address for requests without a valid key when g is nil. Windows are those of this
// process, and of others as far as AddTally told of them.
func (a *Access) Take(g *Grant, client netip.Addr) Window { return a.take(g, client, true) }

// Peek is what Take would return, without counting: for answers that are not counted but carry the window.
func (a *Access) Peek(g *Grant, client netip.Addr) Window { return a.take(g, client, false) }

func (a *Access) take(g *Grant, client netip.Addr, count bool) Window {
	switch w := &a.windows; {
	case g == nil:
		return w.anonymousClients.take(client, int(w.anonymous.Load()), a.now, count)
	case g.demo:
		return w.demoClients.take(client, int(w.demo.Load()), a.now, count)
	case g.kind == Live:
		return g.take(int(w.live.Load()), a.now, count)
	default:
		return g.take(int(w.test.Load()), a.now, count)
	}
}

// take counts a request of a key.
func (g *Grant) take(limit int, now func() time.Time, count bool) Window {
	if count {
		g.taken.Add(1)
	}
	return g.window.take(limit, now, count)
}

// clients are windows by address. An address is forgotten between one and two windows after its last request.
type clients struct {
	seed   maphash.Seed
	shards [64]shard
}

// maxClients bounds each of the two generations of a shard: 2 x 64 x 4096 addresses in all, about 25 MB, for the
// demo and again for those without a key. Who can come
// from more addresses than that within a minute is not held by windows per address, and pushes the oldest ones out.
const maxClients = 4096

// shard is a part of the clients, in two generations: the older is dropped as a whole when the younger has become one
// window old (or full), so that forgetting costs nothing. A running window is never older than that.
type shard struct {
	mu    sync.Mutex
	born  int64 // the second in which young was begun
	young map[place]uint64
	old   map[place]uint64
	fresh map[place]int // requests that no other node was told of; nil where there is none
	_     [24]byte      // no two locks on one cache line
}

// Network is what is counted as one client: an IPv4 address, or the /64 of an IPv6 address, since a whole /64 is what one
// subscriber gets and whoever has one can change the rest at will.
func Network(client netip.Addr) netip.Addr {
	client = client.Unmap()
	if client.Is6() {
		if p, err := client.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return client
}

// place is a network as maps have it.
type place [16]byte

func placeOf(client netip.Addr) place { return place(Network(client).As16()) }

func (c *clients) take(client netip.Addr, limit int, clock func() time.Time, count bool) Window {
	if limit == 0 { // nothing to remember
		at := clock()
		_, w := advance(0, 0, at.Unix(), false)
		w.At = meter.At(at)
		return w
	}
	p := placeOf(client)
	s := c.shard(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := clock() // under the lock, for the reason in counter.take
	now := at.Unix()
	s.age(now)
	next, w := advance(s.state(p), limit, now, count)
	w.At = meter.At(at)
	if count {
		s.keep(p, next, now)
		if s.fresh != nil && len(s.fresh) < maxClients {
			s.fresh[p]++
		}
	}
	return w
}

func (c *clients) shard(p place) *shard {
	return &c.shards[maphash.Comparable(c.seed, p)%uint64(len(c.shards))]
}

// state is that of an address; 0 when nothing is known. With s.mu held.
func (s *shard) state(p place) uint64 {
	if state, ok := s.young[p]; ok {
		return state
	}
	return s.old[p]
}

// keep remembers the state of an address. With s.mu held.
func (s *shard) keep(p place, state uint64, now int64) {
	if len(s.young) >= maxClients {
		s.turn(now)
	}
	s.young[p] = state
}

// age drops what is too old to hold a running window.
func (s *shard) age(now int64) {
	switch age := now - s.born; {
	case s.young == nil, age >= 2*window, age <= -window:
		s.turn(now)
		s.old = nil
	case age >= window:
		s.turn(now)
	}
}

// forget drops the windows that are over, also where no request comes any more.
func (c *clients) forget(now int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.age(now)
		s.mu.Unlock()
	}
}

// turn begins a generation.
func (s *shard) turn(now int64) {
	s.old, s.young, s.born = s.young, map[place]uint64{}, now
}
