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

// The life of a window, as a caller sees it.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond) // within a second
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
				t.Errorf("%s: %+v, want %+v", what, got, w)
			}
			if peek.Reset != got.Reset || peek.Allowed != got.Allowed || allowed && peek.Remaining != remaining+1 || !allowed && peek.Remaining != 0 {
				t.Errorf("%s: peeked %+v before %+v", what, peek, got)
			}
		}
		step("first", 0, 2, true, begun+60, 60)
		step("second", 20*time.Second, 1, true, begun+60, 40)
		step("third", 0, 0, true, begun+60, 40)
		step("refused", 0, 0, false, begun+60, 40)
		step("refused in the last second", 39*time.Second, 0, false, begun+60, 1)
		step("refused just before the end", 699*time.Millisecond, 0, false, begun+60, 1)
		step("the next window, at the second that reset named", time.Millisecond, 2, true, begun+120, 60)
		step("a window begins with its first request", 100*time.Second, 2, true, begun+220, 60)
		step("within", 59*time.Second, 1, true, begun+220, 1)
	})
}

// Waiting for RetryAfter is always enough.
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
				t.Fatalf("after a refusal: %+v", w)
			}
			time.Sleep(time.Duration(w.RetryAfter) * time.Second)
			if w := a.Take(nil, client); !w.Allowed {
				t.Fatalf("waited, and got %+v", w)
			}
		}
	})
}

func TestWhoseWindow(t *testing.T) {
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
		{"from another address", caller(t, a, live), "192.0.2.2", 100, 98},
		{"another live key", caller(t, a, live2), "192.0.2.1", 100, 99},
		{"a test key", caller(t, a, test), "192.0.2.1", 50, 49},
		{"the demo key", caller(t, a, DemoKey), "192.0.2.1", 20, 19},
		{"the demo without a key shares it", a.DemoReader(), "192.0.2.1", 20, 18},
		{"the demo key elsewhere", caller(t, a, DemoKey), "192.0.2.2", 20, 19},
		{"nobody", nil, "192.0.2.1", 10, 9},
		{"nobody again", nil, "192.0.2.1", 10, 8},
		{"nobody elsewhere", nil, "192.0.2.2", 10, 9},
		{"IPv4 in IPv6 clothes", nil, "::ffff:192.0.2.1", 10, 7},
		{"another in such clothes", nil, "::ffff:192.0.2.3", 10, 9},
		{"IPv6", nil, "2001:db8:1:2::1", 10, 9},
		{"the same /64", nil, "2001:db8:1:2:ffff::2", 10, 8},
		{"another /64", nil, "2001:db8:1:3::1", 10, 9},
		{"a peer without an address", nil, "", 10, 9},
		{"and another", nil, "", 10, 8},
	} {
		addr, _ := netip.ParseAddr(tc.client)
		if w := a.Take(tc.g, addr); w.Limit != tc.limit || w.Remaining != tc.remaining || !w.Allowed {
			t.Errorf("%d, %s: %+v, want %d of %d", i, tc.what, w, tc.remaining, tc.limit)
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
				t.Errorf("%v: %+v", g, w)
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
				t.Errorf("%v, %s: %+v", g, what, w)
			}
		}
		take("first", 5, 5, 4, true)
		take("second", 5, 5, 3, true)
		take("lowered below what was counted", 1, 1, 0, false)
		take("raised", 6, 6, 3, true)
		take("unlimited", 0, Unlimited, Unlimited, true)
		take("limited again", 6, 6, 2, true)
		take("the highest", Unlimited, Unlimited, Unlimited-5, true)
	}
	for _, bad := range []Limits{{Live: -1}, {Test: -1}, {Demo: 1 << 31}, {Anonymous: -5}} {
		want(t, fmt.Sprint(bad), a.SetLimits(bad), weir.InvalidRequest)
	}
	if w := a.Peek(nil, client); w.Limit != Unlimited {
		t.Errorf("refused limits were set: %+v", w)
	}
}

// A clock that steps back a little stays in the window; further back it begins one, and locks
// nobody out for an hour.
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
				t.Errorf("%v, %v further back: %+v", g, step.back, w)
			}
		}
	}
}

// However many come at once: exactly the limit is let through, and every number that remains is
// told once.
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
			var told [limit]atomic.Int64
			var group sync.WaitGroup
			for i := range callers {
				group.Go(func() {
					for range each {
						w := a.Take(grants[i%len(grants)], client)
						if w.Remaining < 0 || w.Remaining >= limit {
							t.Errorf("%d remain", w.Remaining)
						} else if w.Allowed {
							allowed.Add(1)
							told[w.Remaining].Add(1)
						} else if w.Remaining != 0 {
							t.Errorf("refused with %d remaining", w.Remaining)
						}
					}
				})
			}
			group.Wait()
			if allowed.Load() != limit {
				t.Errorf("%s, round %d: %d let through, want %d", what, round, allowed.Load(), limit)
			}
			for n := range told {
				if told[n].Load() != 1 {
					t.Errorf("%s: %d callers were told that %d remain", what, told[n].Load(), n)
				}
			}
			clock.advance(window * time.Second)
		}
	}
}

// While the clock runs from window to window under fire, no window lets more than its limit
// through.
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
				t.Errorf("%v: %d let through in the window until %d", g, n, reset)
			}
			for other := range perWindow {
				if other != reset && other > reset-window && other < reset+window {
					t.Errorf("%v: windows until %d and %d overlap", g, reset, other)
				}
			}
		}
		if len(perWindow) < 5 {
			t.Errorf("%d windows only", len(perWindow))
		}
	}
}

// Who is held up right after reading the clock, for longer than a window, does not undo the window
// of the others.
func TestHeldUpAfterTheClock(t *testing.T) {
	clock := newClock()
	var a *Access
	var hook func() // runs once, between reading the clock and returning
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
		t.Errorf("the window of the others is gone: %+v", w)
	}

	// By address, the others cannot even come in between.
	hook = func() {
		c := &a.windows.anonymousClients
		s := &c.shards[maphash.Comparable(c.seed, netKeyOf(client))%uint64(len(c.shards))]
		if s.mu.TryLock() {
			s.mu.Unlock()
			t.Error("the clock is read outside of the lock")
		}
	}
	a.Take(nil, client)
}

// Addresses against a plain map that forgets nothing: generations forget no window that runs.
func TestForgettingNeverShows(t *testing.T) {
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
			t.Fatalf("%d: %+v, want %+v", i, got, w)
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
		t.Errorf("the flood left %d bytes", grown)
	}
	if w := a.Take(nil, client); w.Remaining != DefaultLimits.Anonymous-1 {
		t.Errorf("a caller after the flood: %+v", w)
	}
	for range 2 {
		clock.advance(window * time.Second)
		if err := a.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.size(); n != 0 {
		t.Errorf("%d windows are kept when all are gone", n)
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
		t.Errorf("%v allocations", n)
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
