package service

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"

	"weir/internal/dashboard"
	"weir/internal/server"
	"weir/internal/settings"
)

// office is the dashboard's own listener. It serves the dashboard and the manual, but not the API.
// It exists if --dashboard names an address. The zero value means that there is no such listener.
type office struct {
	server *server.Server
	logger *slog.Logger
}

// officeConnections is the maximum number of connections to the dashboard's own listener. One
// client can have three quarters of them (D34).
const officeConnections = 256

// openOffice listens on the address that --dashboard names. Requests are answered after serve is
// called.
func openOffice(s *settings.Settings, logger *slog.Logger, proxy func(netip.Addr) bool) (office, error) {
	if s.Dashboard == settings.DashboardOn || s.Dashboard == settings.DashboardOff {
		return office{}, nil
	}
	l, err := server.Listen(server.Options{
		HTTP: s.Dashboard, HTTPFlag: s.Where(settings.DashboardFlag), HTTPS: "off", Logger: logger,
		Connections: func() int { return officeConnections }, Window: server.LeastWindow, Proxy: proxy, NetHTTPOnly: true,
	})
	return office{l, logger}, err
}

// url returns the URL at which browsers on this machine open the dashboard. It is empty if the
// dashboard has no listener of its own.
func (o office) url() string {
	if o.server == nil {
		return ""
	}
	return settings.LocalURL("http", o.server.HTTP())
}

// serve starts to answer requests with h. Requests under /v1 and /ds get 404, because this listener
// is for operators and not for clients of the API.
func (o office) serve(h http.Handler) {
	o.server.Serve(v1First(http.NotFoundHandler(), http.NotFoundHandler(), h), server.TLS{})
}

// watch logs an error if the listener fails. The service then continues without a dashboard.
func (o office) watch(stopping <-chan struct{}) {
	select {
	case err := <-o.server.Failed():
		o.logger.Error("the dashboard is out of reach: its address failed", "error", err)
	case <-stopping:
	}
}

// shutdown runs server.Shutdown in a goroutine and returns at once. The returned function waits for
// the result.
func (o office) shutdown(ctx context.Context) func() error {
	if o.server == nil {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- o.server.Shutdown(ctx) }()
	return func() error { return <-done }
}

// withDashboard passes requests for the dashboard to d and all other requests to the handler rest.
func withDashboard(d *dashboard.Dashboard, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dashboard.Serves(r.URL.Path) {
			d.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}
