package access

import (
	"net/netip"
	"strings"
	"testing"
)

func proxies(list ...string) func(*Options) {
	return func(o *Options) {
		for _, s := range list {
			o.TrustedProxies = append(o.TrustedProxies, netip.MustParsePrefix(s))
		}
	}
}

func TestClientIP(t *testing.T) {
	trusted := proxies("10.0.0.0/8", "2001:db8:ffff::/48", "::ffff:192.0.2.0/120")
	const proxy = "10.0.0.1:1234"
	for _, tc := range []struct {
		what, peer string
		header     []string
		want       string
	}{
		{"no header", "198.51.100.7:1", nil, "198.51.100.7"},
		{"a peer that is not trusted", "198.51.100.7:1", []string{"203.0.113.1"}, "198.51.100.7"},
		{"a proxy without a header", proxy, nil, "10.0.0.1"},
		{"a proxy with an empty header", proxy, []string{""}, "10.0.0.1"},
		{"a proxy", proxy, []string{"203.0.113.1"}, "203.0.113.1"},
		{"a forged address on the left", proxy, []string{"1.1.1.1, 203.0.113.1"}, "203.0.113.1"},
		{"a chain of proxies", proxy, []string{"203.0.113.1, 10.0.0.3,10.0.0.2"}, "203.0.113.1"},
		{"a forged address before a chain", proxy, []string{"10.9.9.9, 203.0.113.1, 10.0.0.3"}, "203.0.113.1"},
		{"several header fields", proxy, []string{"1.1.1.1", "203.0.113.1", "10.0.0.2"}, "203.0.113.1"},
		{"several header fields with several addresses", proxy, []string{"1.1.1.1, 203.0.113.1", "10.0.0.3, 10.0.0.2"}, "203.0.113.1"},
		{"only proxies", proxy, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"garbage", proxy, []string{"unknown"}, "10.0.0.1"},
		{"garbage behind a proxy", proxy, []string{"203.0.113.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"garbage on the left", proxy, []string{"<script>, 203.0.113.1"}, "203.0.113.1"},
		{"garbage in an earlier field", proxy, []string{"203.0.113.1", "_hidden", "10.0.0.2"}, "10.0.0.2"},
		{"empty elements", proxy, []string{"203.0.113.1, ,", "", ",10.0.0.2,"}, "203.0.113.1"},
		{"white space", proxy, []string{"\t203.0.113.1 , 10.0.0.2\t"}, "203.0.113.1"},
		{"with a port", proxy, []string{"203.0.113.1:5678"}, "203.0.113.1"},
		{"IPv6", proxy, []string{"2001:db8::1"}, "2001:db8::1"},
		{"IPv6 in brackets with a port", proxy, []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"a zone", proxy, []string{"fe80::1%eth0"}, "fe80::1"},
		{"IPv4-mapped IPv6", proxy, []string{"::ffff:203.0.113.1"}, "203.0.113.1"},
		{"an IPv4-mapped proxy", "[::ffff:10.0.0.1]:1", []string{"203.0.113.1"}, "203.0.113.1"},
		{"an IPv4-mapped proxy in the header", proxy, []string{"203.0.113.1, ::ffff:10.0.0.2"}, "203.0.113.1"},
		{"an IPv4-mapped trusted range", "192.0.2.9:1", []string{"203.0.113.1"}, "203.0.113.1"},
		{"an address outside the IPv4-mapped trusted range", "192.0.3.9:1", []string{"203.0.113.1"}, "192.0.3.9"},
		{"an IPv6 proxy", "[2001:db8:ffff::1]:1", []string{"203.0.113.1"}, "203.0.113.1"},
		{"an IPv6 peer that is not trusted", "[2001:db8:fffe::1%eth0]:1", []string{"203.0.113.1"}, "2001:db8:fffe::1"},
		{"a peer without a port", "10.0.0.1", []string{"203.0.113.1"}, "203.0.113.1"},
		{"a Unix socket", "@", []string{"203.0.113.1"}, "invalid IP"},
		{"no peer", "", []string{"203.0.113.1"}, "invalid IP"},
		{"an IPv4 address with leading zeros", proxy, []string{"203.0.113.1, 010.0.0.2"}, "10.0.0.1"},
	} {
		a := open(t, store(), trusted)
		if got := a.ClientIP(tc.peer, tc.header).String(); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.what, got, tc.want)
		}
	}
	if got := open(t, store()).ClientIP(proxy, []string{"203.0.113.1"}).String(); got != "10.0.0.1" {
		t.Errorf("without trusted proxies: got %s, want the peer", got)
	}
}

// The result is the peer or an address in the header. Addresses to the left of the rightmost
// untrusted address have no effect. If the peer itself is untrusted, the result is the peer.
func FuzzClientIP(f *testing.F) {
	a := open(f, store(), proxies("10.0.0.0/8", "2001:db8::/32"))
	f.Add("10.0.0.1:80", "1.2.3.4, 10.0.0.2", "10.0.0.3")
	f.Add("[2001:db8::1]:80", "::ffff:1.2.3.4,,", " [2001:db8::2%x]:1 ,\t")
	f.Add("1.2.3.4:80", "5.6.7.8", "unknown")
	f.Add("@", ",", "")
	f.Fuzz(func(t *testing.T, peer, one, two string) {
		got := a.ClientIP(peer, []string{one, two})
		self, ok := parseAddr(peer)
		if got.Is4In6() || got.Zone() != "" || got.IsValid() != ok {
			t.Fatalf("got %v for the peer %q", got, peer)
		}
		if ok && !a.trusts(self) && got != self {
			t.Fatalf("got %v, want the untrusted peer %v itself", got, self)
		}
		if joined := a.ClientIP(peer, []string{one + "," + two}); joined != got {
			t.Fatalf("two header fields give %v, one list gives %v", got, joined)
		}
		found := got == self
		for _, s := range strings.Split(one+","+two, ",") {
			addr, ok := parseAddr(strings.Trim(s, " \t"))
			found = found || ok && addr == got
		}
		if !found {
			t.Fatalf("%v is neither the peer nor in the header", got)
		}
		if ok && !a.trusts(got) {
			if lied := a.ClientIP(peer, []string{"6.6.6.6, 10.1.1.1", one, two}); lied != got {
				t.Fatalf("forged addresses on the left changed the result from %v to %v", got, lied)
			}
		}
		a.Take(nil, got)
	})
}
