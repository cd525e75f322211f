package main

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

	"weir/internal/api"
	"weir/internal/disk"
	"weir/internal/metrics"
)

// observer is the operator's own address: metrics, health, readiness and profiles. It is there before the data directory is
// opened and until after it is closed, so that a long start and a long stop can be watched.
type observer struct {
	metrics  *metrics.Metrics
	listener net.Listener // nil: off, or its address was taken
	server   *http.Server

	up     atomic.Bool // the service is open
	failed atomic.Bool // the last SIGHUP
}

const metricsFlag = "metrics"

// observe takes the address and serves it. An address that the operator did not choose is given up when it is taken.
func (svc *service) observe() error {
	b := thisBuild()
	o := &svc.observer
	o.metrics = metrics.New(metrics.Options{
		Version: b.Version, Commit: b.Commit, Go: runtime.Version(), Ready: svc.ready,
		Reloaded: func() bool { return !o.failed.Load() },
	})
	addr := svc.settings.metrics
	if addr == "off" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	from := svc.settings.from.of(metricsFlag)
	if from.kind == byDefault && errors.Is(err, syscall.EADDRINUSE) {
		svc.logger.Warn("the address for metrics is taken, so there are none: set another one with --metrics, or off", "address", addr)
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on %s (%s): %w", addr, from.of(metricsFlag), err)
	}
	o.listener = l
	o.server = &http.Server{
		Handler: o.metrics.Handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(svc.logger.Handler(), slog.LevelDebug),
	}
	svc.observed.Go(func() { o.server.Serve(l) })
	return nil
}

// watched says that the service is open, and where its numbers are.
func (svc *service) watched(h *api.Handler) {
	svc.observer.metrics.Watch(metrics.Sources{
		API: h.Stats, Pages: svc.visits.stats, Hub: svc.hub.Stats, Engine: svc.engine.Status, Journal: svc.store.stats(), Cluster: svc.store.cluster(),
		Space: func() (int64, int64, error) { return disk.Space(svc.settings.data) },
	})
	svc.observer.up.Store(true)
}

// ready says whether the service takes reads and writes, also while it starts. The operator is told what is wrong with the
// store, which clients are not.
func (svc *service) ready() (string, bool) {
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

// address is where the operator looks; empty when that is nowhere.
func (o *observer) address() string {
	if o.listener == nil {
		return ""
	}
	return "http://" + o.listener.Addr().String()
}

// stopObserving gives the address up, last of all.
func (svc *service) stopObserving() {
	if svc.observer.server != nil {
		svc.observer.server.Close()
	}
	svc.observed.Wait()
}
