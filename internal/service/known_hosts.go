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

// knownHosts refuses requests whose Host field names another server. This protects against DNS
// rebinding: another site can make its own name resolve to the address of the operator's listener,
// and then the browser lets a page of that site read the responses. The name of the site is still
// in the Host field, so knownHosts can refuse the request. An IP address in the Host field is
// accepted, because a page that was loaded from this address comes from this server.
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
		if err != nil && !known[name] && !strings.HasSuffix(name, ".localhost") && r.Host != "" { // health checks over HTTP/1.0 send no Host
			http.Error(w, "unknown host: use an IP address, localhost, the name of the machine, or the host of --metrics or --base-url", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
