package dashboard

import (
	"net/netip"
	"sync"
	"time"

	"weir/internal/access"
)

// Who fails to sign in too often has to wait. IPv6 clients are counted by their /64. All addresses from which nobody has ever
// signed in share a second bound, for guesses that come from everywhere; an operator's address is known after the first time.
const (
	maxFailures   = 5    // of an address
	maxStrangers  = 1000 // of all addresses from which nobody has signed in
	failureWindow = 5 * time.Minute
	maxThrottled  = 10_000 // addresses that are remembered; the one that began first goes first
	maxKnown      = 1000
)

// throttle counts failures to sign in.
type throttle struct {
	now func() time.Time

	mu        sync.Mutex
	all       map[netip.Addr]*failures
	strangers failures
	known     map[netip.Addr]time.Time // where somebody signed in from since the start, and when they last did
}

type failures struct {
	since time.Time // the first of them
	n     int
}

func newThrottle(now func() time.Time) throttle {
	return throttle{now: now, all: map[netip.Addr]*failures{}, known: map[netip.Addr]time.Time{}}
}

// try counts an attempt before it is made, so that many at once are not more than many one after another. It returns how long
// to wait; 0: go on.
func (t *throttle) try(client netip.Addr) time.Duration {
	now, at := t.now(), access.Network(client)
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.of(at, now)
	if f.n >= maxFailures {
		return f.since.Add(failureWindow).Sub(now)
	}
	if _, ok := t.known[at]; !ok {
		s := &t.strangers
		if now.Sub(s.since) >= failureWindow {
			*s = failures{since: now}
		}
		if s.n >= maxStrangers {
			return s.since.Add(failureWindow).Sub(now)
		}
		s.n++
	}
	f.n++
	return 0
}

// succeeded forgets the failures of an address, and knows it from now on.
func (t *throttle) succeeded(client netip.Addr) {
	now, at := t.now(), access.Network(client)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, at)
	if _, ok := t.known[at]; !ok {
		t.strangers.n = max(t.strangers.n-1, 0)
		if len(t.known) >= maxKnown {
			dropOldest(t.known, func(at time.Time) time.Time { return at })
		}
	}
	t.known[at] = now
}

// of finds the failures of an address. The lock is held.
func (t *throttle) of(at netip.Addr, now time.Time) *failures {
	f := t.all[at]
	if f == nil && len(t.all) >= maxThrottled {
		dropOldest(t.all, func(f *failures) time.Time { return f.since })
	}
	if f == nil || now.Sub(f.since) >= failureWindow {
		f = &failures{since: now}
		t.all[at] = f
	}
	return f
}

// dropOldest makes room for one more. It looks at everything, which is nothing beside hashing a password.
func dropOldest[V any](all map[netip.Addr]V, since func(V) time.Time) {
	var oldest netip.Addr
	var at time.Time
	for a, v := range all {
		if s := since(v); !oldest.IsValid() || s.Before(at) {
			oldest, at = a, s
		}
	}
	delete(all, oldest)
}
