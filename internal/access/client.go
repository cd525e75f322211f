package access

import (
	"net/netip"
	"strings"
)

// ClientIP returns the address that a request counts under (D23). This is the peer's address, or,
// if the peer is a trusted proxy, the rightmost address in X-Forwarded-For that is not a trusted
// proxy. Addresses further left may have been forged by the client.
//
// If all addresses are trusted, the leftmost is the result. An element that is not an address ends
// the search, and the address to its right is the result. The result has no zone and is never an
// IPv4-mapped IPv6 address. It is the zero Addr if the peer has no IP address.
func (a *Access) ClientIP(remoteAddr string, forwardedFor []string) netip.Addr {
	client, ok := parseAddr(remoteAddr)
	if !ok {
		return netip.Addr{}
	}
	if len(forwardedFor) > 0 && !a.trusts(client) {
		if a.untrusted != nil && !a.told.Load() && !a.told.Swap(true) {
			a.untrusted(client)
		}
		return client
	}
	for i := len(forwardedFor) - 1; i >= 0; i-- {
		rest, more := forwardedFor[i], true
		for more {
			if !a.trusts(client) {
				return client
			}
			var element string
			rest, element, more = cutLast(rest)
			if element == "" { // HTTP lists may have empty elements
				continue
			}
			next, ok := parseAddr(element)
			if !ok {
				return client
			}
			client = next
		}
	}
	return client
}

// cutLast removes the last element of a comma-separated list. The result more is true if other
// elements are left.
func cutLast(list string) (rest, element string, more bool) {
	i := strings.LastIndexByte(list, ',')
	return list[:max(i, 0)], strings.Trim(list[i+1:], " \t"), i >= 0
}

// parseAddr parses an address with or without a port. It removes the zone and unmaps IPv4-mapped
// IPv6 addresses.
func parseAddr(s string) (netip.Addr, bool) {
	withPort, err := netip.ParseAddrPort(s) // first, because http.Request.RemoteAddr has a port
	addr := withPort.Addr()
	if err != nil {
		if addr, err = netip.ParseAddr(s); err != nil {
			return netip.Addr{}, false
		}
	}
	return addr.Unmap().WithZone(""), true
}

func (a *Access) trusts(addr netip.Addr) bool {
	for _, p := range a.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// unmapped converts IPv4-mapped IPv6 prefixes to IPv4. Otherwise they would match nothing, because
// parseAddr unmaps the addresses.
func unmapped(prefixes []netip.Prefix) []netip.Prefix {
	var list []netip.Prefix
	for _, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		list = append(list, p.Masked())
	}
	return list
}
