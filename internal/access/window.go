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

// Limits are requests per minute; 0 is unlimited (D23).
type Limits struct {
	Live      int // per live key, and per management token
	Test      int // per test key
	Demo      int // per client address that reads the demo, with the demo key or without a key
	Anonymous int // per client address, for requests without a valid key
}

// DefaultLimits are the limits of a server without configured limits.
var DefaultLimits = Limits{Live: 600_000, Test: 6_000, Demo: 60, Anonymous: 6_000}

// Unlimited is the value of Window.Limit and Window.Remaining for a caller without a limit.
const Unlimited = math.MaxInt32

// Window is the state of a caller's rate window, the period in which its requests are counted.
type Window struct {
	Limit      int
	Remaining  int   // never negative
	Reset      int64 // Unix time, in seconds, at which the window ends
	Allowed    bool  // the request is within the limit
	RetryAfter int   // seconds until Reset, at least 1
	At         int64 // time of the request, as meter.At returns it, for callers that measure durations
}

// window is the length of a window in seconds.
const window = 60

// counter is the rate window of one caller: the requests counted in a period of 60 seconds. The low
// countBits bits of state hold the number of requests. The bits above hold the second in which the
// window began. A compare-and-swap updates both at once, so that the count is exact under any
// concurrency without a lock.
//
// A window begins with the first request after the previous window has ended. Its start is rounded
// down to the whole second, but not to the minute of the clock. So a caller's first window has its
// full length, and callers do not all retry at the same time.
type counter struct{ state atomic.Uint64 }

const (
	countBits = 31 // the other 33 bits hold Unix seconds until the year 2242
	countMask = 1<<countBits - 1
)

// take counts a request if the parameter count is true and the limit allows the request.
//
// The clock must be read after the state. Otherwise a goroutine could read the clock, be suspended,
// and then load a window that other requests began in the meantime. It would mistake that window
// for a window in the future, and replace it.
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

// advance returns the state of a window after a request at the time now, in Unix seconds, and the
// Window to return to the caller.
func advance(state uint64, limit int, now int64, count bool) (uint64, Window) {
	begun, n := int64(state>>countBits), int(state&countMask)
	// If the clock steps back by less than a window, the window continues. If the clock steps back
	// further, a new window begins: otherwise a caller could be locked out for a long time.
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

// windows holds the limits, and the rate windows of client addresses. The windows of keys are in
// their grants.
type windows struct {
	live, test, demo, anonymous atomic.Int64
	demoClients                 clients
	anonymousClients            clients
}

func (w *windows) init() {
	w.demoClients.seed = maphash.MakeSeed()
	w.anonymousClients.seed = maphash.MakeSeed()
}

// SetLimits changes the limits from the next request on. Requests already counted in a window stay
// counted. It fails with InvalidRequest if a limit is out of range.
func (a *Access) SetLimits(l Limits) error {
	for _, n := range []int{l.Live, l.Test, l.Demo, l.Anonymous} {
		if n < 0 || n > Unlimited {
			return weir.Errorf(weir.InvalidRequest, "rate limit %d is out of range: use 0 (unlimited) to %d requests per minute", n, Unlimited)
		}
	}
	a.windows.live.Store(int64(l.Live))
	a.windows.test.Store(int64(l.Test))
	a.windows.demo.Store(int64(l.Demo))
	a.windows.anonymous.Store(int64(l.Anonymous))
	return nil
}

// Take counts a request in the window of its caller. Callers with a key have one window per key.
// Demo callers, and callers without a valid key (g is nil), have one per client address. Windows
// include the requests of this process, and those of other nodes that were passed to AddTally.
func (a *Access) Take(g *Grant, client netip.Addr) Window { return a.take(g, client, true) }

// Peek returns the window without counting a request. It is for requests that do not count, but
// whose responses show the window.
func (a *Access) Peek(g *Grant, client netip.Addr) Window { return a.take(g, client, false) }

func (a *Access) take(g *Grant, client netip.Addr, count bool) Window {
	switch w := &a.windows; {
	case g == nil:
		return w.anonymousClients.take(client, int(w.anonymous.Load()), a.now, count)
	case g.demo:
		return w.demoClients.take(client, int(w.demo.Load()), a.now, count)
	case g.kind == Live, g.kind == Management:
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

// clients holds windows by address. It forgets an address one to two minutes after the last request
// from it.
type clients struct {
	seed    maphash.Seed
	shards  [64]shard
	counted atomic.Bool // a shard may have requests that were not yet reported to other nodes
}

// maxClients limits the number of addresses in each of the two generations of a shard: 2 x 64 x
// 4096 addresses in all shards, about 25 MB. This memory exists twice, for the demo and for callers
// without a key. An attacker with more addresses per minute displaces the oldest windows, so limits
// per address do not stop such an attacker.
const maxClients = 4096

// shard is a part of the clients, in two generations. Windows are added to the young generation.
// When the young generation is 60 seconds old, or is full, it becomes the old generation, and the
// previous old generation is dropped as a whole. Forgetting therefore costs nothing per address. A
// window is dropped before its end only if a generation is full.
type shard struct {
	mu    sync.Mutex
	born  int64 // when the young generation began, in Unix seconds
	young map[netKey]uint64
	old   map[netKey]uint64
	fresh map[netKey]int // requests not yet reported to other nodes; nil if the store is not shared
	_     [24]byte       // keeps the locks of two shards on different cache lines
}

// Network returns the network that counts as one client: an IPv4 address, or the /64 of an IPv6
// address. Providers assign a whole /64 to one customer, who can use any address in it.
func Network(client netip.Addr) netip.Addr {
	client = client.Unmap()
	if client.Is6() {
		if p, err := client.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return client
}

// netKey is a network as a map key.
type netKey [16]byte

func netKeyOf(client netip.Addr) netKey { return netKey(Network(client).As16()) }

func (c *clients) take(client netip.Addr, limit int, clock func() time.Time, count bool) Window {
	if limit == 0 { // no limit, so nothing to count
		at := clock()
		_, w := advance(0, 0, at.Unix(), false)
		w.At = meter.At(at)
		return w
	}
	p := netKeyOf(client)
	s := c.shard(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := clock() // with the lock held, for the reason given at counter.take
	now := at.Unix()
	s.age(now)
	next, w := advance(s.state(p), limit, now, count)
	w.At = meter.At(at)
	if count {
		s.keep(p, next, now)
		if s.fresh != nil && len(s.fresh) < maxClients {
			s.fresh[p]++
			if !c.counted.Load() {
				c.counted.Store(true)
			}
		}
	}
	return w
}

func (c *clients) shard(p netKey) *shard {
	return &c.shards[maphash.Comparable(c.seed, p)%uint64(len(c.shards))]
}

// state returns the window of an address; 0 if there is none. Called with s.mu held.
func (s *shard) state(p netKey) uint64 {
	if state, ok := s.young[p]; ok {
		return state
	}
	return s.old[p]
}

// keep stores the window of an address. Called with s.mu held.
func (s *shard) keep(p netKey, state uint64, now int64) {
	if len(s.young) >= maxClients {
		s.rotate(now)
	}
	s.young[p] = state
}

// age drops the generations in which every window has ended. Called with s.mu held.
func (s *shard) age(now int64) {
	switch age := now - s.born; {
	case s.young == nil, age >= 2*window, age <= -window:
		s.rotate(now)
		s.old = nil
	case age >= window:
		s.rotate(now)
	}
}

// forget drops windows that have ended, in all shards. A request does this only for the shard of
// its address.
func (c *clients) forget(now int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.age(now)
		s.mu.Unlock()
	}
}

// DropWindows frees the memory of those rate windows of client addresses that have ended. Call it
// periodically.
func (a *Access) DropWindows() {
	now := a.now().Unix()
	a.windows.demoClients.forget(now)
	a.windows.anonymousClients.forget(now)
}

// rotate starts a new generation.
func (s *shard) rotate(now int64) {
	s.old, s.young, s.born = s.young, map[netKey]uint64{}, now
}
