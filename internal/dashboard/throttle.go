package dashboard

import (
	"net/netip"
	"sync"
	"time"

	"weir/internal/access"
)

// Each address may fail to sign in a few times per window, then it must wait for the window to end.
// IPv6 clients are counted per /64 network.
//
// A second limit protects against guesses from many addresses. All addresses without a successful
// sign-in since the server started share it. The address of an operator is exempt from it after the
// first sign-in, so an attack cannot lock that operator out.
const (
	maxFailures   = 5    // per address and window
	maxStrangers  = 1000 // per window, of all addresses without a successful sign-in
	failureWindow = 5 * time.Minute
	maxThrottled  = 10_000 // addresses with failures that are remembered; the oldest is dropped first
	maxKnown      = 1000   // addresses with a successful sign-in that are remembered
)

// throttle counts failed sign-ins.
type throttle struct {
	now func() time.Time

	mu        sync.Mutex
	all       map[netip.Addr]*failures
	strangers failures
	known     map[netip.Addr]time.Time // last successful sign-in since the server started, by address
}

type failures struct {
	since time.Time // start of the window
	n     int
}

func newThrottle(now func() time.Time) throttle {
	return throttle{now: now, all: map[netip.Addr]*failures{}, known: map[netip.Addr]time.Time{}}
}

// try counts an attempt and returns how long the client must wait; 0 means that it may proceed. It
// counts before the password is checked, so that concurrent attempts cannot exceed the limit. After
// a successful sign-in, succeeded takes the attempt back.
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

// succeeded clears the failures of an address and remembers it as known.
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

// of returns the failures of an address in the current window. The caller holds t.mu.
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

// dropOldest removes the oldest entry. It scans the whole map, which costs little compared to
// hashing a password.
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
