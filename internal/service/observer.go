package service

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"weir/internal/build"
	"weir/internal/disk"
	"weir/internal/metrics"
	"weir/internal/settings"
)

// observer serves the operator's own address: metrics, health, readiness and profiles. It starts
// before the service opens the data directory and ends after the service has closed it, so that the
// operator can watch a long start or stop.
type observer struct {
	metrics  *metrics.Metrics
	listener net.Listener // nil if --metrics is off or another process has the address
	server   *http.Server

	up     atomic.Bool // the service is open
	failed atomic.Bool // the reload at the last SIGHUP failed
}

// observe listens on the address of --metrics and serves it. If another process has the default
// address, the server runs without metrics.
func (svc *Service) observe() error {
	b := build.This()
	o := &svc.observer
	o.metrics = metrics.New(metrics.Options{
		Version: b.Version, Commit: b.Commit, Go: runtime.Version(), Ready: svc.ready, Profiles: svc.settings.Profiles,
		Reloaded: func() bool { return !o.failed.Load() },
	})
	addr := svc.settings.Metrics
	if addr == "off" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if svc.settings.IsDefault(settings.MetricsFlag) && errors.Is(err, syscall.EADDRINUSE) {
		svc.logger.Warn("metrics are off because their address is taken: set --metrics to another address, or to off", "address", addr)
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on %s (%s): %w", addr, svc.settings.Where(settings.MetricsFlag), err)
	}
	o.listener = l
	o.server = &http.Server{
		Handler: knownHosts(o.metrics.Handler(), svc.settings), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(svc.logger.Handler(), slog.LevelDebug),
	}
	svc.observed.Go(func() { o.server.Serve(l) })
	return nil
}

// watched connects the metrics to the opened components and marks the service as open.
func (svc *Service) watched() {
	svc.observer.metrics.Watch(metrics.Sources{
		API: svc.API.Stats, Pages: svc.visits.stats, Hub: svc.Hub.Stats, Engine: svc.engine.Status, Journal: svc.store.stats(), Cluster: svc.store.cluster(),
		Connections: func() metrics.Connections { return metrics.Connections(svc.server.Connections()) },
		Space:       func() (int64, int64, error) { return disk.Space(svc.settings.Data) },
	})
	svc.observer.up.Store(true)
}

// ready reports whether the service accepts reads and writes, and if not, the reason. It can be
// called while the service starts. The method health gives no reason, because clients see its
// answer.
func (svc *Service) ready() (string, bool) {
	select {
	case <-svc.stopping:
		return "stopping", false
	default:
	}
	if !svc.observer.up.Load() {
		return "starting", false
	}
	status, ok := svc.health()
	if reason := svc.engine.Status().Reason; !ok && reason != nil {
		status += ": " + reason.Error()
	}
	return status, ok
}

// address returns the URL of the operator's listener. It is empty if there is no listener.
func (o *observer) address() string {
	if o.listener == nil {
		return ""
	}
	return "http://" + o.listener.Addr().String()
}

// stopObserving closes the operator's listener.
func (svc *Service) stopObserving() {
	if svc.observer.server != nil {
		svc.observer.server.Close()
	}
	svc.observed.Wait()
}
