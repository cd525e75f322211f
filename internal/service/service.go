// Package service runs a server. Start takes settings and returns a running service. The service
// opens the engine, the listeners, the certificates, the dashboard, the metrics and the admin
// socket, and drains them when the server stops. weir serve and the tests of other packages start
// the same service.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/admin"
	"weir/internal/api"
	"weir/internal/budget"
	"weir/internal/build"
	"weir/internal/dashboard"
	"weir/internal/durable"
	"weir/internal/engine"
	"weir/internal/hub"
	"weir/internal/manual"
	"weir/internal/server"
	"weir/internal/settings"
)

// Options say how a service starts. Settings and Logger are required.
type Options struct {
	Settings *settings.Settings
	Logger   *slog.Logger
	Commands []manual.Command // the command reference of the manual

	// Engine, if set, is used instead of the engine that the settings name. The service closes it.
	Engine engine.Engine
	// Wrap, if set, wraps the handler of all requests.
	Wrap func(http.Handler) http.Handler
	// Now, if set, replaces the system clock for the dashboard, for keys and for a node of a cluster.
	Now func() time.Time
}

// Service is a running server.
type Service struct {
	Hub       *hub.Hub
	Access    *access.Access
	API       *api.Handler
	Dashboard *dashboard.Dashboard

	options   Options
	settings  *settings.Settings
	logger    *slog.Logger
	engine    engine.Engine
	store     store // the journal or NATS that the engine uses
	server    *server.Server
	office    office
	certs     certificates
	password  string // password of the dashboard that this start created; empty once it has been shown
	visits    visits
	elsewhere atomic.Pointer[hub.Elsewhere] // which batches other nodes are receiving; nil until the hub is open
	operators net.Listener                  // listener of the admin socket
	demo      demo
	socket    *http.Server
	first     *firstStart // what this start created and has not shown yet
	stopping  chan struct{}
	failed    failure
	work      sync.WaitGroup
	feeding   sync.WaitGroup // the feed of the demo stream: it waits for a store that does not answer, which closing the engine ends

	capacity capacity
	bodies   *budget.Budget // memory of request bodies
	batches  *budget.Budget // memory of batches in flight to clients
	reloads  []reload       // what SIGHUP re-reads besides the settings
	observer observer
	observed sync.WaitGroup // the goroutine of the observer, which ends after all others
}

// Start opens the data directory and starts to serve requests. On an error it closes everything
// that it has opened.
func Start(ctx context.Context, o Options) (*Service, error) {
	svc := &Service{options: o, settings: o.Settings, logger: o.Logger, stopping: make(chan struct{}), failed: make(failure, 1), capacity: thisCapacity()}
	svc.store.settings, svc.store.logger, svc.store.now = o.Settings, o.Logger, o.Now
	svc.bodies, svc.batches = svc.capacity.payloads(largestBody), svc.capacity.payloads(largestBatch)
	if err := svc.start(ctx); err != nil {
		svc.Stop(0)
		return nil, err
	}
	return svc, nil
}

// start opens one component after the other. It creates secrets last, because they are shown only
// once and would be lost if the start failed afterwards.
func (svc *Service) start(ctx context.Context) (err error) {
	s := svc.settings
	for _, exposed := range s.SecretsExposed() {
		svc.logger.Warn("a secret is not protected", "problem", exposed)
	}
	if err := svc.checkPassword(); err != nil {
		return err
	}
	svc.server, err = server.Listen(server.Options{
		HTTP: s.HTTP, HTTPS: s.HTTPS.Address, HTTPSMayFail: s.IsDefault(settings.HTTPSFlag), Logger: svc.logger, Connections: svc.connections, Window: svc.capacity.window(), Proxy: svc.isProxy,
		NetHTTPOnly: !s.EventLoop,
	})
	if err != nil {
		return err
	}
	if svc.office, err = openOffice(s, svc.logger, svc.isProxy); err != nil {
		return err
	}
	if err := svc.observe(); err != nil {
		return err
	}
	if svc.engine = svc.options.Engine; svc.engine == nil {
		if svc.engine, err = svc.store.open(ctx); err != nil {
			return err
		}
	}
	svc.Access, err = access.Open(ctx, svc.engine, access.Options{Limits: s.Limits, Demo: s.Demo, TrustedProxies: s.Proxies, Untrusted: unnamedProxy(svc.logger)})
	if err != nil {
		return err
	}
	// The hub evicts expired batches as soon as it is open, so this node must first learn from the
	// other nodes whether its clock is wrong.
	if err := svc.joinNodes(); err != nil {
		return err
	}
	setClock(svc.Access, svc.store.clock(), svc.options.Now)
	svc.Hub, err = hub.Open(ctx, svc.engine, hub.Options{
		GapGrace: s.GapGrace, StreamsPerProject: s.StreamsPerProject, Logger: svc.logger, Frame: api.Frame, Memory: svc.batches,
		StateBytes: svc.capacity.states(), IndexBytes: cmp.Or(int64(s.MaxIndexMemory), svc.capacity.index()),
		Now: svc.store.clock(),
	})
	if err != nil {
		return err
	}
	svc.Hub.Lead(svc.store.isFirst)
	svc.demo = demo{hub: svc.Hub, store: &svc.store, logger: svc.logger}
	svc.elsewhere.Store(hub.NewElsewhere(svc.Hub))
	secure, err := svc.secure()
	if err != nil {
		return err
	}
	isFirst := svc.isFirst() && svc.claimFirst(ctx)
	if err := svc.prepare(ctx); err != nil {
		return err
	}
	if svc.operators, err = admin.Listen(s.Data); err != nil {
		return err
	}
	if isFirst {
		if err := svc.makeFirst(ctx); err != nil {
			return fmt.Errorf("create the first project: %w", err)
		}
	}
	if err := svc.serve(secure); err != nil {
		return err
	}
	svc.work.Go(svc.watchFailures)
	svc.store.tend(&svc.work, svc.stopping, svc.failed)
	svc.work.Go(svc.keepUse)
	svc.work.Go(func() { expireKeys(svc.Access, svc.stopping) })
	svc.work.Go(func() { returnMemory(svc.stopping) })
	if lease := svc.store.lease(); lease != nil {
		svc.work.Go(func() { watchLease(svc.Hub, lease, svc.logger, svc.stopping) })
	}
	if s.Demo {
		svc.feeding.Go(func() { svc.demo.feed(svc.stopping) })
	}
	return nil
}

// unnamedProxy returns a function that logs a warning about a peer that sends X-Forwarded-For but
// is not in --trusted-proxies. The peer is a proxy that the operator did not name, or a client that
// pretends to be a proxy.
func unnamedProxy(logger *slog.Logger) func(peer netip.Addr) {
	return func(peer netip.Addr) {
		logger.Warn("X-Forwarded-For of a peer was ignored: if the peer is your proxy, name it with --trusted-proxies; "+
			"until then all its clients count as one, for rate limits and for wrong passwords", "peer", peer)
	}
}

// prepare creates the bootstrap keys. It also creates or deletes the demo stream, as the settings
// say.
func (svc *Service) prepare(ctx context.Context) error {
	for i, k := range svc.settings.BootstrapKeys {
		name, key, _ := strings.Cut(k, ":")
		p, err := svc.Access.EnsureProject(ctx, name)
		if err == nil {
			_, err = svc.Access.ImportKey(ctx, access.KeySpec{Project: p.ID, Name: "bootstrap"}, key)
		}
		if known, ok := errors.AsType[*weir.Error](err); ok {
			err = errors.New(known.Message) // without the error code, which is meant for programs
		}
		if err != nil {
			return fmt.Errorf("--bootstrap-keys: entry %d: %w", i+1, err)
		}
	}
	return svc.demo.prepare(ctx, svc.settings.Demo)
}

// serve starts to answer requests.
func (svc *Service) serve(secure server.TLS) error {
	b := build.This()
	places := svc.settings.MaxSubscribers
	if svc.settings.IsDefault(settings.MaxSubscribersFlag) {
		places = min(places, svc.capacity.subscribers())
	}
	svc.API = api.New(api.Options{
		Hub: svc.Hub, Access: svc.Access, BaseURL: svc.URL(), Version: b.Version, Commit: b.Commit, Built: b.Built,
		Heartbeat: svc.settings.Heartbeat, WriteTimeout: svc.settings.WriteTimeout, MaxSubscribers: places,
		PerKey: svc.settings.PerKey, PerProject: svc.settings.PerProject, PerAddress: svc.settings.PerAddress,
		Bodies: svc.bodies, Batches: svc.batches,
		CORSOrigins: svc.settings.CORSOrigins, Logger: svc.logger, Started: time.Now(), Health: svc.health, Lease: svc.store.lease(),
		Note: func(what string) func(context.Context, string, netip.Addr, string) {
			return svc.Dashboard.NoteProgram(what)
		},
	})
	svc.watched()
	if err := svc.openDashboard(b); err != nil {
		return err
	}
	svc.serveSocket()
	if svc.office.server != nil {
		svc.work.Go(func() { svc.office.watch(svc.stopping) })
		svc.office.serve(svc.visits.counted(withDashboard(svc.Dashboard, svc.manual(true))))
	}
	shown := svc.settings.Dashboard == settings.DashboardOn
	pages := svc.manual(shown)
	if shown {
		pages = withDashboard(svc.Dashboard, pages)
	}
	ds := durable.New(durable.Options{
		Hub: svc.Hub, Access: svc.Access, API: svc.API, Open: svc.settings.DSOpen, LongPoll: svc.settings.DSLongPoll,
		Now: svc.store.clock(),
	})
	handler := svc.certs.handler(v1First(svc.API, ds, svc.visits.counted(pages)))
	if svc.options.Wrap != nil {
		handler = svc.options.Wrap(handler)
	} else {
		handler = publishing{handler, svc.API, ds}
	}
	svc.server.Oversized(http.HandlerFunc(svc.API.RefuseHeader))
	svc.server.Serve(handler, secure)
	return svc.certs.start(svc.server)
}

// manual returns the handler of the manual and the JavaScript client. It passes all other paths to
// the handler of /v1, which refuses those that do not exist. If hasDashboard is true, pages link to
// the dashboard.
func (svc *Service) manual(hasDashboard bool) http.Handler {
	o := manual.Options{Commands: svc.options.Commands, URL: svc.URL(), Dashboard: hasDashboard}
	if at := svc.server.HTTPS(); at != "" {
		o.HTTPS = settings.LocalURL("https", at)
	}
	for _, f := range api.Faults() {
		o.Faults = append(o.Faults, manual.Fault{
			Code: string(f.Code), Status: f.Status, Type: f.Type, RetryAfter: f.RetryAfter, Means: f.Means, Todo: f.Todo,
		})
	}
	return clientJS(manual.New(o, svc.API))
}

// serveSocket answers the operator's commands on the admin socket.
func (svc *Service) serveSocket() {
	commands := admin.New(svc.Access, svc.logger)
	commands.Note = func(ctx context.Context, what, detail string) {
		svc.Dashboard.Note(ctx, "command line", what, detail)
	}
	commands.Backups(svc.backup)
	commands.Migrations(svc.migrate)
	commands.Nodes(svc.store.list)
	commands.Cluster(members{&svc.store})
	svc.socket = &http.Server{
		Handler: commands, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(svc.logger.Handler(), slog.LevelError),
	}
	svc.work.Go(func() { svc.socket.Serve(svc.operators) })
}

// Failed returns a channel that receives an error if the server cannot continue and must be stopped:
// a listener failed, the store stayed read-only (--exit-when-read-only), the NATS server inside this
// process could not be restarted, or this node was removed from the cluster.
func (svc *Service) Failed() <-chan error { return svc.failed }

// URL returns the address that links start with.
func (svc *Service) URL() string {
	if svc.settings.BaseURL != "" {
		return strings.TrimRight(svc.settings.BaseURL, "/")
	}
	if svc.server.HTTP() != "" {
		return settings.LocalURL("http", svc.server.HTTP())
	}
	return settings.LocalURL("https", svc.server.HTTPS())
}

// Addresses returns the addresses on which the server listens, as log attributes.
func (svc *Service) Addresses() []any {
	var all []any
	if at := svc.server.HTTP(); at != "" {
		all = append(all, "http", settings.LocalURL("http", at))
	}
	if at := svc.server.HTTPS(); at != "" {
		all = append(all, "https", settings.LocalURL("https", at))
	}
	all = append(all, "data", svc.settings.Data, "url", svc.URL(), "metrics", svc.observer.address())
	if svc.settings.Dashboard != settings.DashboardOff {
		all = append(all, "dashboard", cmp.Or(svc.office.url(), svc.URL())+"/dashboard")
	}
	return append(all, "manual", svc.URL()+"/docs")
}

// health reports whether the service accepts reads and writes (D32).
func (svc *Service) health() (string, bool) {
	select {
	case <-svc.stopping:
		return "stopping", false
	default:
	}
	if svc.engine.Status().State != engine.Ready {
		return "read_only", false
	}
	return "ok", true
}

// setClock sets the clock that decides when keys revoke themselves: the first of the given clocks
// that is not nil. If all are nil, the keys use the system clock.
func setClock(a *access.Access, clocks ...func() time.Time) {
	for _, clock := range clocks {
		if clock != nil {
			a.SetClock(clock)
			return
		}
	}
}

// expireEvery is how often the service checks whether keys must revoke themselves. D18 allows two
// seconds until the subscriptions of such a key end.
const expireEvery = 500 * time.Millisecond

// expireKeys makes keys revoke themselves when their time has come. It runs until the channel
// stopping is closed.
func expireKeys(a *access.Access, stopping <-chan struct{}) {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			a.Expire()
		case <-stopping:
			return
		}
	}
}

// keepUse stores the last use of each key once a minute, and forgets keys that were revoked long
// ago. It writes nothing unless the store is ready. In a full store, the last free space is
// reserved for revoking keys.
func (svc *Service) keepUse() {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			svc.Access.DropWindows()
			if svc.engine.Status().State != engine.Ready {
				continue
			}
			if err := svc.Access.Flush(context.Background()); err != nil {
				svc.logger.Warn("storing the last use of keys failed", "error", err)
			}
			if !svc.store.isFirst() {
				continue
			}
			if err := svc.Access.Forget(context.Background()); err != nil {
				svc.logger.Warn("forgetting revoked keys failed", "error", err)
			}
		case <-svc.stopping:
			return
		}
	}
}

// Stop drains the service: it ends subscriptions, waits for requests in flight for at most the
// grace period, flushes everything and closes the store.
func (svc *Service) Stop(grace time.Duration) error {
	close(svc.stopping)
	defer svc.stopObserving()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var faults []error
	if svc.Hub != nil {
		svc.Hub.StopSubscriptions()
	}
	svc.certs.close()
	if svc.API != nil {
		// If a subscriber has not read the end of its subscription after half of the grace period,
		// it probably reads nothing at all. Disconnecting it then leaves the other half of the
		// period to the requests in flight.
		defer time.AfterFunc(grace/2, svc.API.EndSubscriptions).Stop()
	}
	office := svc.office.shutdown(ctx)
	if svc.server != nil {
		if err := errors.Join(svc.server.Shutdown(ctx), office()); err != nil {
			svc.logger.Warn("requests were cut off at the end of the grace period", "error", err)
		}
	}
	if svc.operators != nil {
		svc.operators.Close() // a failed start may have opened the listener without serving it
	}
	if svc.socket != nil {
		svc.socket.Close()
	}
	svc.work.Wait()
	late, done := svc.store.lastWrites()
	defer done()
	if svc.Dashboard != nil {
		svc.Dashboard.Close(late)
	}
	svc.store.leaveNodes()
	if svc.Hub != nil {
		faults = append(faults, svc.Hub.Close())
	}
	if svc.Access != nil && svc.engine.Status().State == engine.Ready {
		faults = append(faults, svc.store.settled(svc.Access.Close(late), svc.logger))
	}
	if svc.engine != nil {
		faults = append(faults, svc.engine.Close())
	}
	svc.feeding.Wait()
	svc.store.close()
	return errors.Join(faults...)
}
