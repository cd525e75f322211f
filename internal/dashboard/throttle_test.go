package dashboard

import (
	"net/netip"
	"testing"
	"time"
)

// A flood of guesses from many addresses is limited in total, and does not lock out an address that
// has signed in before.
func TestThrottleFlood(t *testing.T) {
	now := time.Unix(1e9, 0)
	th := newThrottle(func() time.Time { return now })
	ip := netip.MustParseAddr
	for range maxFailures {
		th.try(ip("2001:db8::1"))
	}
	if th.try(ip("2001:db8::2")) == 0 || th.try(ip("2001:db8:0:1::")) != 0 {
		t.Error("IPv6 addresses are not counted per /64 network")
	}
	operator := ip("192.0.2.1")
	for range 3 * maxFailures { // successful sign-ins do not count
		if th.try(operator) != 0 {
			t.Fatal("frequent successful sign-ins are throttled")
		}
		th.succeeded(operator)
	}
	allowed := 0
	for i := range maxThrottled + 100 {
		if th.try(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})) == 0 {
			allowed++
		}
	}
	if len(th.all) != maxThrottled || allowed > maxStrangers {
		t.Errorf("%d addresses are remembered, want %d; %d attempts were allowed, want at most %d", len(th.all), maxThrottled, allowed, maxStrangers)
	}
	for i := range maxFailures {
		if th.try(operator) != 0 {
			t.Fatalf("the operator is locked out after only %d failures", i)
		}
	}
	if th.try(operator) == 0 {
		t.Error("a known address is never throttled")
	}
	now = now.Add(failureWindow)
	if th.try(ip("203.0.113.1")) != 0 {
		t.Error("an unknown address is still throttled after the flood")
	}
	for i := range 2 * maxKnown {
		th.succeeded(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	if len(th.known) != maxKnown {
		t.Errorf("%d known addresses, want %d", len(th.known), maxKnown)
	}
}
