package access

import (
	"net/netip"
	"strings"
)

// ClientIP is the address that a request counts under (D23): that of the peer, or, when the peer is a trusted proxy, the
// rightmost address of the X-Forwarded-For header fields that is no trusted proxy. What stands to the left of that
// anybody can have written. Where all are trusted it is the leftmost, and where something is no address, the last good
// one before it. The result has no zone and is never an IPv4 address in IPv6 clothes; it is the zero Addr when the peer
// has no IP address.
func (a *Access) ClientIP(remoteAddr string, forwardedFor []string) netip.Addr {
	client, ok := parseAddr(remoteAddr)
	if !ok {
		return netip.Addr{}
	}
	for i := len(forwardedFor) - 1; i >= 0; i-- {
		rest, more := forwardedFor[i], true
		for more {
			if !a.trusts(client) {
				return client
			}
			var element string
			rest, element, more = cutLast(rest)
			if element == "" { // lists may have empty elements, which mean nothing
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

// cutLast takes the last element off a comma-separated list; more tells whether others are left.
func cutLast(list string) (rest, element string, more bool) {
	i := strings.LastIndexByte(list, ',')
	return list[:max(i, 0)], strings.Trim(list[i+1:], " \t"), i >= 0
}

// parseAddr reads an address with or without a port.
func parseAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		withPort, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = withPort.Addr()
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

// plain rewrites prefixes of IPv4 addresses in IPv6 clothes, which would contain nothing.
func plain(prefixes []netip.Prefix) []netip.Prefix {
	var list []netip.Prefix
	for _, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		list = append(list, p.Masked())
	}
	return list
}
