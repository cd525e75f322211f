package access

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
)

var client = netip.MustParseAddr("192.0.2.1")

func limits(l Limits) func(*Options) { return func(o *Options) { o.Limits = l } }

// TestWindow follows a window from its first request to the next window.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond) // so that the window does not start on a whole second
		a := open(t, store(), limits(Limits{Live: 3}))
		p := project(t, a, "app")
		_, secret := key(t, a, KeySpec{Project: p.ID})
		g := caller(t, a, secret)
		begun := time.Now().Unix()
		step := func(what string, after time.Duration, remaining int, allowed bool, reset int64, retry int) {
			t.Helper()
			time.Sleep(after)
			peek := a.Peek(g, client)
			got := a.Take(g, client)
			if w := (Window{3, remaining, reset, allowed, retry, got.At}); got != w {
				t.Errorf("%s: got %+v, want %+v", what, got, w)
			}
			if peek.Reset != got.Reset || peek.Allowed != got.Allowed || allowed && peek.Remaining != remaining+1 || !allowed && peek.Remaining != 0 {
				t.Errorf("%s: Peek returned %+v before Take returned %+v", what, peek, got)
			}
		}
		step("first", 0, 2, true, begun+60, 60)
		step("second", 20*time.Second, 1, true, begun+60, 40)
		step("third", 0, 0, true, begun+60, 40)
		step("refused", 0, 0, false, begun+60, 40)
		step("refused in the last second", 39*time.Second, 0, false, begun+60, 1)
		step("refused just before the end", 699*time.Millisecond, 0, false, begun+60, 1)
		step("the next window, at the time given by Reset", time.Millisecond, 2, true, begun+120, 60)
		step("a window begins with its first request", 100*time.Second, 2, true, begun+220, 60)
		step("within the window", 59*time.Second, 1, true, begun+220, 1)
	})
}

// A refused caller that waits as long as RetryAfter says is allowed again.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t, store(), limits(Limits{Anonymous: 2}))
		for range 50 {
			time.Sleep(time.Duration(rand.Int64N(int64(90 * time.Second))))
			for a.Take(nil, client).Allowed {
				time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Second))))
			}
			w := a.Take(nil, client)
			if w.Allowed || w.RetryAfter < 1 || w.RetryAfter > 60 {
				t.Fatalf("the window after a refusal is %+v", w)
			}
			time.Sleep(time.Duration(w.RetryAfter) * time.Second)
			if w := a.Take(nil, client); !w.Allowed {
				t.Fatalf("refused after waiting for RetryAfter: %+v", w)
			}
		}
	})
}

func TestWindowPerCaller(t *testing.T) {
	a := open(t, store(), limits(Limits{Live: 100, Test: 50, Demo: 20, Anonymous: 10}))
	p := project(t, a, "app")
	_, live := key(t, a, KeySpec{Project: p.ID, Kind: Live})
	_, live2 := key(t, a, KeySpec{Project: p.ID, Kind: Live})
	_, test := key(t, a, KeySpec{Project: p.ID, Kind: Test})
	for i, tc := range []struct {
		what             string
		g                *Grant
		client           string
		limit, remaining int
	}{
		{"a live key", caller(t, a, live), "192.0.2.1", 100, 99},
		{"the same live key, from another address", caller(t, a, live), "192.0.2.2", 100, 98},
		{"another live key", caller(t, a, live2), "192.0.2.1", 100, 99},
		{"a test key", caller(t, a, test), "192.0.2.1", 50, 49},
		{"the demo key", caller(t, a, DemoKey), "192.0.2.1", 20, 19},
		{"the demo without a key, in the same window", a.DemoReader(), "192.0.2.1", 20, 18},
		{"the demo key, from another address", caller(t, a, DemoKey), "192.0.2.2", 20, 19},
		{"no key", nil, "192.0.2.1", 10, 9},
		{"no key again", nil, "192.0.2.1", 10, 8},
		{"no key, from another address", nil, "192.0.2.2", 10, 9},
		{"the same address, IPv4-mapped", nil, "::ffff:192.0.2.1", 10, 7},
		{"another IPv4-mapped address", nil, "::ffff:192.0.2.3", 10, 9},
		{"IPv6", nil, "2001:db8:1:2::1", 10, 9},
		{"the same /64", nil, "2001:db8:1:2:ffff::2", 10, 8},
		{"another /64", nil, "2001:db8:1:3::1", 10, 9},
		{"a peer without an address", nil, "", 10, 9},
		{"another peer without an address", nil, "", 10, 8},
	} {
		addr, _ := netip.ParseAddr(tc.client)
		if w := a.Take(tc.g, addr); w.Limit != tc.limit || w.Remaining != tc.remaining || !w.Allowed {
			t.Errorf("%d, %s: got %+v, want %d of %d", i, tc.what, w, tc.remaining, tc.limit)
		}
	}
}

func TestUnlimited(t *testing.T) {
	a := open(t, store(), limits(Limits{}))
	p := project(t, a, "app")
	_, live := key(t, a, KeySpec{Project: p.ID, Kind: Live})
	_, test := key(t, a, KeySpec{Project: p.ID, Kind: Test})
	now := time.Now().Unix()
	for _, g := range []*Grant{caller(t, a, live), caller(t, a, test), caller(t, a, DemoKey), a.DemoReader(), nil} {
		for range 3 {
			w := a.Take(g, client)
			if w.Limit != 2147483647 || w.Remaining != 2147483647 || !w.Allowed || w.Reset < now+59 || w.Reset > now+62 || w.RetryAfter < 1 {
				t.Errorf("%v: the window is %+v, want it unlimited", g, w)
			}
		}
	}
}

func TestSetLimits(t *testing.T) {
	clock := newClock()
	a := open(t, store(), limits(Limits{Live: 5, Anonymous: 5}), clock.set)
	p := project(t, a, "app")
	_, secret := key(t, a, KeySpec{Project: p.ID})
	for _, g := range []*Grant{caller(t, a, secret), nil} {
		take := func(what string, n, limit, remaining int, allowed bool) {
			t.Helper()
			if err := a.SetLimits(Limits{Live: n, Anonymous: n}); err != nil {
				t.Fatal(err)
			}
			if w := a.Take(g, client); w.Limit != limit || w.Remaining != remaining || w.Allowed != allowed {
				t.Errorf("%v, %s: the window is %+v", g, what, w)
			}
		}
		take("first", 5, 5, 4, true)
		take("second", 5, 5, 3, true)
		take("lowered below the count", 1, 1, 0, false)
		take("raised", 6, 6, 3, true)
		take("unlimited", 0, Unlimited, Unlimited, true)
		take("limited again", 6, 6, 2, true)
		take("the highest", Unlimited, Unlimited, Unlimited-5, true)
	}
	for _, bad := range []Limits{{Live: -1}, {Test: -1}, {Demo: 1 << 31}, {Anonymous: -5}} {
		want(t, fmt.Sprint(bad), a.SetLimits(bad), weir.InvalidRequest)
	}
	if w := a.Peek(nil, client); w.Limit != Unlimited {
		t.Errorf("invalid limits were set: %+v", w)
	}
}

// If the clock steps back by less than a window, the window continues. If the clock steps back
// further, a new window begins, so that no caller is locked out for an hour.
func TestClockStepsBack(t *testing.T) {
	clock := newClock()
	a := open(t, store(), limits(Limits{Live: 1, Anonymous: 1}), clock.set)
	p := project(t, a, "app")
	_, secret := key(t, a, KeySpec{Project: p.ID})
	g := caller(t, a, secret)
	for _, step := range []struct {
		back    time.Duration
		allowed bool
	}{{0, true}, {time.Second, false}, {58 * time.Second, false}, {time.Second, true}, {time.Hour, true}, {0, false}} {
		clock.advance(-step.back)
		for _, g := range []*Grant{g, nil} {
			if w := a.Take(g, client); w.Allowed != step.allowed || w.RetryAfter > 2*window {
				t.Errorf("%v, clock set back by %v: the window is %+v", g, step.back, w)
			}
		}
	}
}

// However many requests are concurrent, exactly the limit is allowed, and each value of Remaining
// is returned once.
func TestExactUnderConcurrency(t *testing.T) {
	const limit, callers, each = 500, 16, 100
	clock := newClock()
	a := open(t, store(), limits(Limits{Live: limit, Demo: limit, Anonymous: limit}), clock.set)
	p := project(t, a, "app")
	_, secret := key(t, a, KeySpec{Project: p.ID})
	demo := []*Grant{caller(t, a, DemoKey), a.DemoReader()}
	for what, grants := range map[string][]*Grant{"key": {caller(t, a, secret)}, "demo": demo, "anonymous": {nil}} {
		for round := range 3 {
			var allowed atomic.Int64
			var seen [limit]atomic.Int64
			var group sync.WaitGroup
			for i := range callers {
				group.Go(func() {
					for range each {
						w := a.Take(grants[i%len(grants)], client)
						if w.Remaining < 0 || w.Remaining >= limit {
							t.Errorf("Remaining is %d, out of range", w.Remaining)
						} else if w.Allowed {
							allowed.Add(1)
							seen[w.Remaining].Add(1)
						} else if w.Remaining != 0 {
							t.Errorf("a request was refused with %d remaining", w.Remaining)
						}
					}
				})
			}
			group.Wait()
			if allowed.Load() != limit {
				t.Errorf("%s, round %d: %d requests allowed, want %d", what, round, allowed.Load(), limit)
			}
			for n := range seen {
				if seen[n].Load() != 1 {
					t.Errorf("%s: %d requests got Remaining %d, want 1", what, seen[n].Load(), n)
				}
			}
			clock.advance(window * time.Second)
		}
	}
}

// While the clock moves through several windows under concurrent requests, no window allows more
// than its limit, and no two windows overlap.
func TestExactAcrossWindows(t *testing.T) {
	const limit = 50
	clock := newClock()
	a := open(t, store(), limits(Limits{Live: limit, Anonymous: limit}), clock.set)
	p := project(t, a, "app")
	_, secret := key(t, a, KeySpec{Project: p.ID})
	for _, g := range []*Grant{caller(t, a, secret), nil} {
		var mu sync.Mutex
		perWindow := map[int64]int{}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for i := range 2000 {
					if i%10 == 0 {
						clock.advance(time.Second / 4)
					}
					if w := a.Take(g, client); w.Allowed {
						mu.Lock()
						perWindow[w.Reset]++
						mu.Unlock()
					}
				}
			})
		}
		group.Wait()
		for reset, n := range perWindow {
			if n > limit {
				t.Errorf("%v: %d requests allowed in the window until %d, want at most %d", g, n, reset, limit)
			}
			for other := range perWindow {
				if other != reset && other > reset-window && other < reset+window {
					t.Errorf("%v: windows until %d and %d overlap", g, reset, other)
				}
			}
		}
		if len(perWindow) < 5 {
			t.Errorf("only %d windows, too few to test anything", len(perWindow))
		}
	}
}

// A request may be suspended right after it has read the clock, for longer than a window. It must
// not replace the window that other requests have begun in the meantime.
func TestSuspendedRequestKeepsTheNewWindow(t *testing.T) {
	clock := newClock()
	var a *Access
	var hook func() // runs once, after Now has read the clock and before it returns
	a = open(t, store(), limits(Limits{Live: 5, Anonymous: 5}), func(o *Options) {
		o.Now = func() time.Time {
			now := clock.now()
			if h := hook; h != nil {
				hook = nil
				h()
			}
			return now
		}
	})
	p := project(t, a, "app")
	_, secret := key(t, a, KeySpec{Project: p.ID})
	g := caller(t, a, secret)
	a.Take(g, client)
	hook = func() {
		clock.advance(5 * window * time.Second)
		a.Take(g, client)
	}
	if w := a.Take(g, client); w.Remaining != 3 {
		t.Errorf("the window that another request began was replaced: %+v", w)
	}

	// For windows by address, the clock must be read with the lock held.
	hook = func() {
		c := &a.windows.anonymousClients
		s := &c.shards[maphash.Comparable(c.seed, netKeyOf(client))%uint64(len(c.shards))]
		if s.mu.TryLock() {
			s.mu.Unlock()
			t.Error("the clock was read without the lock")
		}
	}
	a.Take(nil, client)
}

// The windows by address behave like a plain map that forgets nothing: a window is never dropped
// before it has ended.
func TestGenerationsKeepRunningWindows(t *testing.T) {
	clock := newClock()
	a := open(t, store(), limits(Limits{Anonymous: 4}), clock.set)
	model := map[int]uint64{}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 40_000 {
		clock.advance(time.Duration(rng.IntN(int(2 * time.Second))))
		if rng.IntN(500) == 0 {
			clock.advance(time.Duration(rng.IntN(int(200 * time.Second))))
		}
		if rng.IntN(50) == 0 {
			a.windows.anonymousClients.forget(clock.now().Unix())
		}
		i := rng.IntN(30)
		next, w := advance(model[i], 4, clock.now().Unix(), true)
		model[i] = next
		got := a.Take(nil, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
		if w.At = got.At; got != w {
			t.Fatalf("address %d: got %+v, want %+v", i, got, w)
		}
	}
}

func (c *clients) size() (n int) {
	for i := range c.shards {
		n += len(c.shards[i].young) + len(c.shards[i].old)
	}
	return n
}

func TestMemoryIsBounded(t *testing.T) {
	clock := newClock()
	a := open(t, store(), clock.set)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const flood = 1_000_000
	for i := range flood {
		a.Take(nil, netip.AddrFrom16([16]byte{0x20, 1, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	c := &a.windows.anonymousClients
	most := 2 * len(c.shards) * maxClients
	if n := c.size(); n > most || n < most/4 {
		t.Errorf("%d windows after a flood, want at most %d", n, most)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d windows take %d KiB", c.size(), grown>>10)
	if grown > 48<<20 {
		t.Errorf("the flood made the heap grow by %d bytes, want at most %d", grown, 48<<20)
	}
	if w := a.Take(nil, client); w.Remaining != DefaultLimits.Anonymous-1 {
		t.Errorf("the window of another address after the flood is %+v", w)
	}
	for range 2 {
		clock.advance(window * time.Second)
		a.DropWindows()
	}
	if n := c.size(); n != 0 {
		t.Errorf("%d windows are kept after all have ended", n)
	}
}

func TestTakeAllocatesNothing(t *testing.T) {
	a := open(t, store())
	p := project(t, a, "app")
	_, secret := key(t, a, KeySpec{Project: p.ID})
	values := []string{"Bearer " + secret}
	a.Take(nil, client)
	if n := testing.AllocsPerRun(1000, func() {
		g, _ := a.Authenticate(values)
		a.Take(g, client)
		a.Take(nil, client)
	}); n != 0 {
		t.Errorf("%v allocations per request, want 0", n)
	}
}

func BenchmarkTake(b *testing.B) {
	a := open(b, store(), limits(Limits{Live: 1 << 30, Anonymous: 1 << 30}))
	p := project(b, a, "app")
	_, secret := key(b, a, KeySpec{Project: p.ID})
	for name, g := range map[string]*Grant{"key": caller(b, a, secret), "address": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					a.Take(g, client)
				}
			})
		})
	}
}
