package dashboard

import (
	"net/netip"
	"sync"
	"time"

	"weir/internal/access"
)

// The dashboard limits failed sign-ins per window of time. After maxFailures failures, an address
// must wait until the window ends. IPv6 clients are counted per /64 network. A browser that has
// signed in before is counted by itself and not by its address.
//
// A second limit, maxStrangers, protects against guesses from many addresses. It limits the total
// number of failures from addresses without a successful sign-in since the server started. So after
// the first sign-in, the address of an operator is exempt from this limit, and an attack cannot lock
// that operator out.
const (
	maxFailures   = 5    // failures per address and window
	maxStrangers  = 1000 // failures per window in total, from all addresses without a successful sign-in
	failureWindow = 5 * time.Minute
	maxThrottled  = 10_000 // maximum number of addresses, and of browsers, whose failures are remembered; the oldest is dropped first
	maxKnown      = 1000   // maximum number of addresses whose successful sign-in is remembered
)

// throttle counts failed sign-ins.
type throttle struct {
	now    func() time.Time
	locked func(client netip.Addr, wait time.Duration) // called at the first refusal of a window; may be nil

	mu        sync.Mutex
	all       map[netip.Addr]*failures
	browsers  map[string]*failures
	strangers failures
	known     map[netip.Addr]time.Time // time of the last successful sign-in since the server started, by address
}

type failures struct {
	since time.Time // start of the window
	n     int
	told  bool // throttle.locked was called in this window
}

func newThrottle(now func() time.Time) throttle {
	return throttle{now: now, all: map[netip.Addr]*failures{}, browsers: map[string]*failures{}, known: map[netip.Addr]time.Time{}}
}

// try counts an attempt and returns how long the client must wait; 0 means that it may proceed. The
// caller calls try before it checks the password, so that concurrent attempts cannot exceed the
// limit. If the password is right, the caller must call succeeded, so that the attempt does not
// count as a failure.
func (t *throttle) try(client netip.Addr) time.Duration {
	now, at := t.now(), access.Network(client)
	t.mu.Lock()
	defer t.mu.Unlock()
	f := failuresOf(t.all, at, now)
	if f.n >= maxFailures {
		return t.refuse(f, client, now)
	}
	if _, ok := t.known[at]; !ok {
		s := &t.strangers
		if now.Sub(s.since) >= failureWindow {
			*s = failures{since: now}
		}
		if s.n >= maxStrangers {
			return t.refuse(s, client, now)
		}
		s.n++
	}
	f.n++
	return 0
}

// tryBrowser is like the method try, but for a browser that has signed in before.
func (t *throttle) tryBrowser(id string, client netip.Addr) time.Duration {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	f := failuresOf(t.browsers, id, now)
	if f.n >= maxFailures {
		return t.refuse(f, client, now)
	}
	f.n++
	return 0
}

// browserSucceeded clears the failures of a browser.
func (t *throttle) browserSucceeded(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.browsers, id)
}

// refuse returns how long a client must wait, and reports the first refusal of a window. The caller
// holds t.mu.
func (t *throttle) refuse(f *failures, client netip.Addr, now time.Time) time.Duration {
	wait := f.since.Add(failureWindow).Sub(now)
	if !f.told && t.locked != nil {
		t.locked(client, wait)
	}
	f.told = true
	return wait
}

// succeeded clears the failures of an address and remembers the address as one with a successful
// sign-in.
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

// failuresOf returns the failures of an address or a browser in the current window.
func failuresOf[K comparable](all map[K]*failures, of K, now time.Time) *failures {
	f := all[of]
	if f == nil && len(all) >= maxThrottled {
		dropOldest(all, func(f *failures) time.Time { return f.since })
	}
	if f == nil || now.Sub(f.since) >= failureWindow {
		f = &failures{since: now}
		all[of] = f
	}
	return f
}

// dropOldest removes the oldest entry. It scans the whole map, which costs little compared to
// hashing a password.
func dropOldest[K comparable, V any](all map[K]V, since func(V) time.Time) {
	var oldest K
	var at time.Time
	for k, v := range all {
		if s := since(v); at.IsZero() || s.Before(at) {
			oldest, at = k, s
		}
	}
	delete(all, oldest)
}
