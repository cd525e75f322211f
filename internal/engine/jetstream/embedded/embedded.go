// Package embedded runs a NATS server inside this process, configured for the jetstream engine:
// JetStream syncs before it acknowledges, other clients cannot connect, and the routes to the
// servers of other nodes are encrypted and accept only nodes that have the cluster's shared secret.
package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Options configure a node.
type Options struct {
	Dir    string // directory for all data of the node
	Most   int64  // maximum number of bytes to store; 0 means three quarters of the free disk space at start
	Logger *slog.Logger

	// The fields below are for a node of a cluster.
	Name    string   // name of the node, unique in its cluster and the same at every start
	Cluster string   // name of the cluster
	Listen  string   // HOST:PORT for routes from other nodes; empty for a single node
	Peers   []string // HOST:PORT of the other nodes; the node's own address may be among them
	Secret  []byte   // shared secret of the cluster
	Refused []string // names of nodes that may not connect, because they were removed from the cluster
}

// ErrStart says that the NATS server gave up while it started, for example because its disk is full.
// The caller may try again.
var ErrStart = errors.New("the NATS server of this node cannot start")

// Server is a running NATS server.
type Server struct {
	options  Options
	password string // password for clients; empty if the server does not listen for clients
	s        atomic.Pointer[server.Server]
	refused  atomic.Pointer[[]string] // see Refuse
	stop     func(s *server.Server, handOver bool)
}

// stop stops a server and waits until it has stopped. If handOver is true, the server first hands over
// the streams that it leads.
func stop(s *server.Server, handOver bool) {
	if handOver {
		s.LameDuckShutdown()
	}
	s.Shutdown()
	s.WaitForShutdown()
}

const (
	user = "weir"

	maxPayload  = 8 << 20
	startWithin = time.Minute      // on a busy machine
	writeWithin = 10 * time.Second // a write inside the process waits only if the server hangs or the process was stopped
	stopWithin  = 30 * time.Second

	// When a machine vanishes, its connections are not closed. The server sends a ping every
	// pingEvery and gives up a route after pingsOut pings without an answer. Until then it still
	// sends requests to the lost machine. Giving up takes about as long as the shards of that
	// machine need to elect new leaders. With the defaults of NATS it would take one to two
	// minutes.
	pingEvery = 2 * time.Second
	pingsOut  = 3

	// gathering is how long nodes that are started together may take to find each other. During
	// this time, failures to connect are not logged as warnings.
	gathering = 30 * time.Second
	// reportEvery is the number of failed attempts to reach a node after which the failure is
	// logged again. There is one attempt per second.
	reportEvery = 60
)

// Start starts a server. The server tries to join its cluster in the background: Start succeeds
// even if no other node can be reached.
func Start(o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Server{options: o, stop: stop}
	e.Refuse(o.Refused)
	if o.Listen != "" {
		e.password = rand.Text()
	}
	if err := e.run(); err != nil {
		return nil, err
	}
	return e, nil
}

// run starts a NATS server on the directory.
func (e *Server) run() error {
	o := e.options
	opts := &server.Options{
		ServerName: o.Name, DontListen: true, NoSigs: true, MaxPayload: maxPayload,
		JetStream: true, StoreDir: o.Dir, SyncAlways: true, DisableJetStreamBanner: true,
		JetStreamMaxStore: o.Most, ConnectErrorReports: reportEvery, ReconnectErrorReports: reportEvery,
	}
	if o.Listen != "" {
		if err := join(opts, o, e.password, e.refuses); err != nil {
			return err
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("configure NATS server: %w", err)
	}
	l := &logger{l: o.Logger.With("part", "nats"), begun: time.Now()}
	s.SetLoggerV2(l, false, false, false)
	s.Start()
	e.s.Store(s)
	if why := l.fatal.Load(); why != nil {
		return e.giveUp(*why)
	}
	if !s.ReadyForConnections(startWithin) {
		e.Stop()
		return fmt.Errorf("NATS server did not start within %v", startWithin)
	}
	if !s.JetStreamEnabled() {
		return e.giveUp("it cannot store data, see the log")
	}
	return nil
}

// giveUp stops a server that cannot start, and returns ErrStart with the reason. If the server does
// not stop, the error is another one, because a second server must not use the same directory.
func (e *Server) giveUp(why string) error {
	if err := e.halt(false); err != nil {
		return fmt.Errorf("the NATS server cannot start (%s): %w", why, err)
	}
	return fmt.Errorf("%w: %s", ErrStart, why)
}

// join adds the cluster settings to opts.
func join(opts *server.Options, o Options, password string, refused func(string) bool) error {
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", o.Listen)
	}
	number, err := strconv.Atoi(port)
	if err != nil || number < 1 || number > 65535 {
		return fmt.Errorf("%q is not HOST:PORT", o.Listen)
	}
	if o.Cluster == "" || o.Name == "" {
		return errors.New("a node of a cluster needs the cluster's name and a name of its own")
	}
	secure, err := mutual(o.Secret, o.Name, refused)
	if err != nil {
		return err
	}
	// NATS opens routes only if the server also listens for clients. So the server listens for
	// clients on 127.0.0.1, with a random password that does not leave the process.
	opts.DontListen, opts.Host, opts.Port = false, "127.0.0.1", server.RANDOM_PORT
	sys := server.NewAccount(server.DEFAULT_SYSTEM_ACCOUNT)
	opts.Accounts, opts.SystemAccount = []*server.Account{sys}, sys.Name
	opts.Users = []*server.User{{Username: user, Password: password}, {Username: system, Password: password, Account: sys}}
	opts.Tags = []string{nodeTag + o.Name}
	opts.Cluster = server.ClusterOpts{
		Name: o.Cluster, Host: host, Port: number, TLSConfig: secure, TLSTimeout: 5, PingInterval: pingEvery, MaxPingsOut: pingsOut,
	}
	for _, p := range o.Peers {
		if p == o.Listen {
			continue
		}
		if _, _, err := net.SplitHostPort(p); err != nil {
			return fmt.Errorf("peer %q is not HOST:PORT", p)
		}
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats-route", Host: p})
	}
	// The NATS server only logs that it cannot listen. It returns no error.
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen for other nodes (--cluster-listen): %w", err)
	}
	return l.Close()
}

// Connect returns a connection that stays inside the process. After a Restart, it reconnects by
// itself.
func (e *Server) Connect(options ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{
		nats.InProcessServer(e), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.FlusherTimeout(writeWithin),
		nats.ReconnectOnFlusherError(), // otherwise the client drops what it could not write, and stays connected
	}, options...)
	if e.password != "" {
		all = append(all, nats.UserInfo(user, e.password))
	}
	return nats.Connect("", all...)
}

// InProcessConn implements nats.InProcessConnProvider.
func (e *Server) InProcessConn() (net.Conn, error) { return e.s.Load().InProcessConn() }

// Connected reports whether the connection with this id still exists. Tests use it to see when the
// server has noticed that a client has disconnected.
func (e *Server) Connected(id uint64) bool { return e.s.Load().GetClient(id) != nil }

// Room returns the number of stored bytes and the maximum number of bytes. Both are 0 if the server
// cannot tell.
func (e *Server) Room() (used, limit int64) {
	info, err := e.s.Load().Jsz(&server.JSzOptions{})
	if err != nil || info.Disabled {
		return 0, 0
	}
	return int64(info.Store), info.Config.MaxStore
}

// Fault returns why the server has stopped storing data, or nil if it has not. A server stops when
// its disk refuses a write: it disables JetStream, or the one stream that it could not write. It
// does not start again by itself, even when the disk has space again: call Restart.
func (e *Server) Fault() error {
	s := e.s.Load()
	if !s.JetStreamEnabled() {
		return errors.New("the NATS server has disabled JetStream")
	}
	for _, f := range s.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if strings.Contains(f.Error, "write error") { // a stream, or the group of servers that manages all streams, failed to write
			return errors.New(f.Error)
		}
	}
	return nil
}

// Restart stops the NATS server and starts another one on the same directory. If it returns an
// error, no server is usable, and the process must end.
func (e *Server) Restart() error {
	if err := e.halt(false); err != nil {
		return err
	}
	return e.run()
}

// Ready waits until the node can store data. A node of a cluster can store data as soon as a
// majority of the nodes is connected, a single node at once.
func (e *Server) Ready(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !e.s.Load().JetStreamIsCurrent() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for a majority of the cluster's nodes: %w", ctx.Err())
		}
	}
	return nil
}

// Stop stops the server. In a cluster, it first hands over the streams that it leads.
func (e *Server) Stop() { e.halt(e.password != "") }

// halt stops the server. A server whose disk refuses writes may never stop, nor hand over its streams.
// Then halt returns an error after stopWithin. What the server has acknowledged is synced, so nothing
// is lost if the process ends.
func (e *Server) halt(handOver bool) error {
	stopped := make(chan struct{})
	go func() {
		e.stop(e.s.Load(), handOver)
		close(stopped)
	}()
	late := time.NewTimer(stopWithin)
	defer late.Stop()
	select {
	case <-stopped:
		return nil
	case <-late.C:
		return fmt.Errorf("the NATS server did not stop within %v", stopWithin)
	}
}

// Kill stops the server without handing its streams to other nodes. It is meant for tests.
func (e *Server) Kill() {
	e.s.Load().DisableJetStream()
	e.halt(false)
}

// logger passes the server's messages to slog, one level lower than the server chose. The reason is
// that most errors say that another node cannot be reached, which is normal while nodes start. Two
// warnings are dropped, because they would worry operators without reason: one about a plaintext
// password, which stays inside this process, and one about certificates, which Weir verifies
// itself.
type logger struct {
	l     *slog.Logger
	begun time.Time
	fatal atomic.Pointer[string] // why the server has given up; nil if it has not
}

func (l *logger) Noticef(format string, a ...any) { l.l.Debug(fmt.Sprintf(format, a...)) }
func (l *logger) Errorf(format string, a ...any)  { l.say(slog.LevelWarn, format, a) }
func (l *logger) Debugf(string, ...any)           {}
func (l *logger) Tracef(string, ...any)           {}
func (l *logger) Warnf(format string, a ...any)   { l.say(slog.LevelInfo, format, a) }

// Fatalf records why the server gives up. With the logger of NATS, the process would end.
func (l *logger) Fatalf(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	l.l.Error(text)
	l.fatal.Store(&text)
}

func (l *logger) say(level slog.Level, format string, a []any) {
	text := fmt.Sprintf(format, a...)
	begins := func(with string) bool { return strings.HasPrefix(text, with) }
	switch {
	case slices.ContainsFunc(needless, begins):
		return
	case time.Since(l.begun) < gathering && slices.ContainsFunc(early, begins):
		level = slog.LevelDebug
	}
	l.l.Log(context.Background(), level, text)
}

// The beginnings of messages of the NATS server.
var (
	needless = []string{"Plaintext passwords detected", "TLS certificate chain and hostname of solicited routes"}
	early    = []string{"Error trying to connect to route", "Waiting for routing to be established", "JetStream has not established contact with a meta leader"}
)
