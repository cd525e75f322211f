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

// office is the address of the dashboard's own, if --dashboard names one. Its zero value is none.
type office struct {
	server *server.Server
	logger *slog.Logger
}

// officeConnections is the maximum number of connections to that address, of which one client can have
// half.
const officeConnections = 256

// openOffice listens on the address. It answers once serve is called.
func openOffice(s *settings.Settings, logger *slog.Logger, proxy func(netip.Addr) bool) (office, error) {
	if s.Dashboard == settings.DashboardOn || s.Dashboard == settings.DashboardOff {
		return office{}, nil
	}
	l, err := server.Listen(server.Options{
		HTTP: s.Dashboard, HTTPFlag: s.Where(settings.DashboardFlag), HTTPS: "off", Logger: logger,
		Connections: func() int { return officeConnections }, Proxy: proxy,
	})
	return office{l, logger}, err
}

// url is where browsers on this machine open it; empty if there is none.
func (o office) url() string {
	if o.server == nil {
		return ""
	}
	return settings.LocalURL("http", o.server.HTTP())
}

// serve starts to answer requests: all that h serves but /v1, which is not for operators.
func (o office) serve(h http.Handler) {
	v1 := http.NotFoundHandler()
	o.server.Serve(v1First(v1, h), server.TLS{})
}

// watch logs if the listener fails. The service goes on without a dashboard then.
func (o office) watch(stopping <-chan struct{}) {
	select {
	case err := <-o.server.Failed():
		o.logger.Error("the dashboard is out of reach: its address failed", "error", err)
	case <-stopping:
	}
}

// shutdown ends requests like server.Shutdown, beside the caller. The function that it returns waits for
// the end.
func (o office) shutdown(ctx context.Context) func() error {
	if o.server == nil {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- o.server.Shutdown(ctx) }()
	return func() error { return <-done }
}

// withDashboard serves the dashboard, and other paths with rest.
func withDashboard(d *dashboard.Dashboard, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dashboard.Serves(r.URL.Path) {
			d.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}
