package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/admin"
	"weir/internal/api"
	"weir/internal/budget"
	"weir/internal/engine"
	"weir/internal/hub"
	"weir/internal/server"
)

// adminSocket is where the running server takes an operator's commands, in the data directory.
const adminSocket = "admin.sock"

// service is a running server: every room, wired.
type service struct {
	settings  settings
	logger    *slog.Logger
	engine    engine.Engine
	store     store // what is behind the engine
	access    *access.Access
	hub       *hub.Hub
	server    *server.Server
	certs     certificates
	api       *api.Handler
	pages     pages
	visits    visits
	operators net.Listener // of the admin socket
	socket    *http.Server
	first     *firstStart // what to print, once
	stopping  chan struct{}
	work      sync.WaitGroup

	capacity capacity
	bodies   *budget.Budget // memory of those that come in
	batches  *budget.Budget // and of those that go out
	reloads  []reload       // what SIGHUP has re-read beside the settings
	observer observer
	observed sync.WaitGroup // ends after everything else
}

// start opens the data directory and serves. On an error everything that was opened is closed again.
func start(ctx context.Context, s settings, logger *slog.Logger) (svc *service, err error) {
	svc = &service{settings: s, logger: logger, stopping: make(chan struct{}), capacity: thisCapacity()}
	svc.bodies, svc.batches = svc.capacity.payloads(), svc.capacity.payloads()
	defer func() {
		if err != nil {
			svc.stop(0)
		}
	}()
	if err := s.checkPassword(); err != nil {
		return svc, err
	}
	svc.server, err = server.Listen(server.Options{
		HTTP: s.http, HTTPS: s.https.address, HTTPSMayFail: !s.https.chosen, Logger: logger, Connections: svc.connections, Proxy: svc.isProxy,
	})
	if err != nil {
		return svc, err // before anything is made that is shown only once
	}
	if err := svc.observe(); err != nil {
		return svc, err
	}
	if err := svc.openEngine(ctx); err != nil {
		return svc, err
	}
	svc.access, err = access.Open(ctx, svc.engine, access.Options{Limits: s.limits, Demo: s.demo, TrustedProxies: s.proxies})
	if err != nil {
		return svc, err
	}
	svc.hub, err = hub.Open(ctx, svc.engine, hub.Options{
		GapGrace: s.gapGrace, StreamsPerProject: s.streamsPerProject, Logger: logger, Frame: api.Frame, Memory: svc.batches,
	})
	if err != nil {
		return svc, err
	}
	if err := svc.joinNodes(); err != nil {
		return svc, err
	}
	secure, err := svc.secure()
	if err != nil {
		return svc, err
	}
	isFirst := svc.isFirst() && svc.claim(ctx, "first")
	if err := svc.furnish(ctx); err != nil {
		return svc, err
	}
	if svc.operators, err = listenSocket(s.data); err != nil {
		return svc, err
	}
	if isFirst { // after all that can fail: its key is shown only now
		if err := svc.makeFirst(ctx); err != nil {
			return svc, fmt.Errorf("make the first project: %w", err)
		}
	}
	if err := svc.serve(secure); err != nil {
		return svc, err
	}
	svc.work.Go(svc.keepUse)
	if s.demo {
		svc.work.Go(svc.feedDemo)
	}
	return svc, nil
}

// furnish makes what was asked for: keys and the demo.
func (svc *service) furnish(ctx context.Context) error {
	for i, k := range svc.settings.bootstrapKeys {
		name, key, _ := strings.Cut(k, ":")
		p, err := svc.access.EnsureProject(ctx, name)
		if err == nil {
			_, err = svc.access.ImportKey(ctx, access.KeySpec{Project: p.ID, Name: "bootstrap"}, key)
		}
		if known, ok := errors.AsType[*weir.Error](err); ok {
			err = errors.New(known.Message) // its code is for programs
		}
		if err != nil {
			return fmt.Errorf("--bootstrap-keys: entry %d: %w", i+1, err)
		}
	}
	if svc.settings.demo {
		return svc.makeDemo(ctx)
	}
	return svc.dropDemo(ctx)
}

// listenSocket opens the operator's socket.
func listenSocket(data string) (net.Listener, error) {
	path := filepath.Join(data, adminSocket)
	os.Remove(path) // of a server that was killed: the lock says that none runs
	old := umask(0o177)
	l, err := net.Listen("unix", path)
	umask(old)
	if err != nil {
		return nil, fmt.Errorf("open the admin socket: %w", ofSocket(path, err))
	}
	return l, nil
}

// serve begins to serve.
func (svc *service) serve(secure server.TLS) error {
	b := thisBuild()
	svc.api = api.New(api.Options{
		Hub: svc.hub, Access: svc.access, BaseURL: svc.url(), Version: b.Version, Commit: b.Commit, Built: b.Built,
		Heartbeat: svc.settings.heartbeat, WriteTimeout: svc.settings.writeTimeout, MaxSubscribers: svc.settings.maxSubscribers,
		Bodies: svc.bodies, Batches: svc.batches,
		CORSOrigins: svc.settings.corsOrigins, Logger: svc.logger, Started: time.Now(), Health: svc.health,
	})
	svc.watched(svc.api)
	if err := svc.openPages(b); err != nil {
		return err
	}
	commands := admin.New(svc.access, svc.logger)
	commands.Note = svc.pages.note
	svc.socket = &http.Server{
		Handler: svc.migrations(svc.backups(commands)), ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(svc.logger.Handler(), slog.LevelError),
	}
	svc.work.Go(func() { svc.socket.Serve(svc.operators) })
	beside := svc.visits.counted(clientJS(svc.pages.handler(withManual(svc.api))))
	svc.server.Serve(svc.certs.handler(interfaceFirst(svc.api, beside)), secure)
	return svc.certs.start(svc.server)
}

// secure opens the certificates, where there is something to secure.
func (svc *service) secure() (server.TLS, error) {
	at := svc.server.HTTPS()
	if at == "" {
		return server.TLS{}, nil
	}
	var err error
	if svc.certs, err = openCertificates(svc.settings.https, svc.settings.data, svc.settings.baseURL, at, svc.logger); err != nil {
		return server.TLS{}, err
	}
	svc.reloads = append(svc.reloads, reload{"certificates", svc.certs.reload})
	return svc.certs.tls(svc.settings.data)
}

// url is what links start with.
func (svc *service) url() string {
	if svc.settings.baseURL != "" {
		return strings.TrimRight(svc.settings.baseURL, "/")
	}
	if svc.server.HTTP() != "" {
		return local("http", svc.server.HTTP())
	}
	return local("https", svc.server.HTTPS())
}

// addresses are where the server listens, for the log.
func (svc *service) addresses() []any {
	var all []any
	if at := svc.server.HTTP(); at != "" {
		all = append(all, "http", local("http", at))
	}
	if at := svc.server.HTTPS(); at != "" {
		all = append(all, "https", local("https", at))
	}
	return all
}

// local is an address in a form to open on this machine.
func local(scheme, address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return scheme + "://" + address
	}
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// health says whether the service takes reads and writes (D32).
func (svc *service) health() (string, bool) {
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

// keepUse stores when keys were last used, now and then.
func (svc *service) keepUse() {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := svc.access.Flush(context.Background()); err != nil {
				svc.logger.Warn("when keys were last used was not stored", "error", err)
			}
		case <-svc.stopping:
			return
		}
	}
}

// stop drains: subscribers are sent away, requests in flight get until the grace is over, and everything is flushed.
func (svc *service) stop(grace time.Duration) error {
	close(svc.stopping)
	defer svc.stopObserving()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var faults []error
	if svc.hub != nil {
		svc.hub.StopSubscriptions()
	}
	svc.certs.close()
	if svc.api != nil {
		// Who has not taken the goodbye by then takes nothing at all, and would hold the others until the grace is over.
		defer time.AfterFunc(grace/2, svc.api.EndSubscriptions).Stop()
	}
	if svc.server != nil {
		if err := svc.server.Shutdown(ctx); err != nil {
			svc.logger.Warn("some requests were cut off", "error", err)
		}
	}
	if svc.operators != nil {
		svc.operators.Close() // also when a failed start never served it
	}
	if svc.socket != nil {
		svc.socket.Close()
	}
	svc.work.Wait()
	late, done := svc.store.lastWords()
	defer done()
	svc.pages.close(late)
	svc.store.leaveNodes()
	if svc.hub != nil {
		faults = append(faults, svc.hub.Close())
	}
	if svc.access != nil && svc.engine.Status().State == engine.Ready {
		faults = append(faults, svc.store.settled(svc.access.Close(late), svc.logger))
	}
	if svc.engine != nil {
		faults = append(faults, svc.engine.Close())
	}
	svc.store.close()
	return errors.Join(faults...)
}

// firstStart is what is made once, and shown once.
type firstStart struct {
	key    string
	stream weir.StreamID
}

const firstProject = "default"

// isFirst tells whether no start got as far as making the first key.
func (svc *service) isFirst() bool {
	p, ok := svc.access.ProjectNamed(firstProject)
	return !ok || len(svc.access.Keys(p.ID)) == 0
}

// makeFirst makes the first project, its stream and, last of all, its key.
func (svc *service) makeFirst(ctx context.Context) error {
	p, err := svc.access.EnsureProject(ctx, firstProject)
	if err != nil {
		return err
	}
	s, err := svc.hub.Create(ctx, hub.Spec{
		Project: p.ID, Name: "first", RetentionSeconds: weir.DefaultRetention, MaxBytes: weir.DefaultMaxBytes, Mode: weir.JSON,
	})
	if err != nil {
		return err
	}
	_, secret, err := svc.access.CreateKey(ctx, access.KeySpec{Project: p.ID, Kind: access.Live, Name: "first"})
	if err != nil {
		return err
	}
	svc.first = &firstStart{secret.Reveal(), s.ID}
	return nil
}

// welcome prints the key and what to do with it, at the first start only.
func (svc *service) welcome(w io.Writer) {
	if svc.first == nil {
		svc.welcomePassword(w)
		return
	}
	fmt.Fprintf(w, `
Weir is running at %[1]s
%[6]sIts data is in %[2]s.

The project "default" was made, with a stream and this key. It is shown only now:

  %[3]s

Publish to the stream:

  curl -sS%[7]s -H 'Authorization: Bearer %[3]s' -H 'Content-Type: application/json' -d '{"events":["hello"]}' %[1]s/v1/streams/%[4]s/publish

Subscribe to it, from its beginning:

  curl -sSN%[7]s -H 'Authorization: Bearer %[3]s' -H 'Accept: text/event-stream' '%[1]s/v1/streams/%[4]s?cursor=0'

More keys: weir key create --project default --data %[5]s

`, svc.url(), svc.settings.data, svc.first.key, svc.first.stream, quoted(svc.settings.data), svc.welcomeHTTPS(), svc.trusting())
	svc.first = nil
	svc.welcomePassword(w)
}

// quoted is a word as a shell takes it.
func quoted(s string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-", r)
	}
	if !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
