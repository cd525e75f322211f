package service

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"weir/internal/settings"
)

// knownHosts refuses requests to names that are not of this server. A page of another site can make
// its own name resolve to the operator's address (DNS rebinding), and then the browser lets it read
// the responses; but the name stays in the Host field. Addresses are fine there: a page that was
// loaded from this address is ours.
func knownHosts(h http.Handler, s *settings.Settings) http.Handler {
	known := map[string]bool{"localhost": true}
	if name, err := os.Hostname(); err == nil {
		known[strings.ToLower(name)] = true
	}
	if host, _, err := net.SplitHostPort(s.Metrics); err == nil {
		known[strings.ToLower(host)] = true
	}
	if u, err := url.Parse(s.BaseURL); err == nil {
		known[strings.ToLower(u.Hostname())] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.ToLower(strings.TrimSuffix((&url.URL{Host: r.Host}).Hostname(), "."))
		_, err := netip.ParseAddr(name)
		if err != nil && !known[name] && !strings.HasSuffix(name, ".localhost") && r.Host != "" { // checks over HTTP/1.0 send no Host
			http.Error(w, "unknown host: use an IP address, localhost, or the host of --metrics or --base-url", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
