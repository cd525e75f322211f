package dashboard

import (
	"net/netip"
	"sync"
	"time"
)

// Who fails to sign in too often has to wait. IPv6 clients are counted by their /64.
const (
	maxFailures   = 5
	failureWindow = 5 * time.Minute
	maxThrottled  = 10_000 // addresses that are remembered; beyond that all are counted as one
)

// throttle counts failures to sign in, by address.
type throttle struct {
	now func() time.Time

	mu  sync.Mutex
	all map[netip.Addr]*failures
}

type failures struct {
	since time.Time // the first of them
	n     int
}

// try counts an attempt before it is made, so that many at once are not more than many one after another. It returns how long
// to wait; 0: go on.
func (t *throttle) try(client netip.Addr) time.Duration {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.of(client, now)
	if f.n >= maxFailures {
		return f.since.Add(failureWindow).Sub(now)
	}
	f.n++
	return 0
}

// succeeded forgets the failures of an address.
func (t *throttle) succeeded(client netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, network(client))
}

// of finds the failures of an address. The lock is held.
func (t *throttle) of(client netip.Addr, now time.Time) *failures {
	at := network(client)
	f := t.all[at]
	if f == nil && len(t.all) >= maxThrottled {
		for a, old := range t.all {
			if now.Sub(old.since) >= failureWindow {
				delete(t.all, a)
			}
		}
		if len(t.all) >= maxThrottled {
			at = netip.Addr{}
			f = t.all[at]
		}
	}
	if f == nil || now.Sub(f.since) >= failureWindow {
		f = &failures{since: now}
		t.all[at] = f
	}
	return f
}

// network is what an address is counted under.
func network(a netip.Addr) netip.Addr {
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
