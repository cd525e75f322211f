// Package embedded runs a NATS server inside this process, set up as the jetstream engine wants it: JetStream synced before
// it acknowledges, closed to other clients, and routes to the servers of other nodes that are encrypted and open only to who
// knows the cluster's secret.
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
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Options are what a node needs to know.
type Options struct {
	Dir    string // where it keeps everything
	Most   int64  // bytes that it keeps; 0: three quarters of what is free on the disk when it starts
	Logger *slog.Logger

	// Of a node that is not alone.
	Name    string   // of the node; unique in its cluster and the same at every start
	Cluster string   // name of the cluster
	Listen  string   // HOST:PORT for routes from other nodes; empty: alone
	Peers   []string // HOST:PORT of other nodes; its own may be among them
	Secret  []byte   // what all nodes of the cluster know
}

// Server is a running NATS server.
type Server struct {
	s        *server.Server
	password string // of clients; empty: nothing listens for them
}

const (
	user = "weir"

	maxPayload  = 8 << 20
	startWithin = 10 * time.Second

	// A machine that vanishes says nothing. Its routes are given up when so many pings had no answer, as soon as its shards have other
	// leaders: until then questions are sent there too. The servers' own measure is one to two minutes.
	pingEvery = 2 * time.Second
	pingsOut  = 3

	// gathering is how long nodes that are started together may take to find each other: nothing is said of it before.
	gathering = 30 * time.Second
	// reportEvery is how many times it is tried in vain to reach another node until that is said again. It is tried every second.
	reportEvery = 60
)

// Start starts a server. It takes part in its cluster from then on, whether or not other nodes can be reached.
func Start(o Options) (*Server, error) {
	opts := &server.Options{
		ServerName: o.Name, DontListen: true, NoSigs: true, NoLog: o.Logger == nil, MaxPayload: maxPayload,
		JetStream: true, StoreDir: o.Dir, SyncAlways: true, DisableJetStreamBanner: true,
		JetStreamMaxStore: o.Most, ConnectErrorReports: reportEvery, ReconnectErrorReports: reportEvery,
	}
	if o.Listen != "" {
		if err := join(opts, o); err != nil {
			return nil, err
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("set up the NATS server: %w", err)
	}
	if o.Logger != nil {
		s.SetLoggerV2(logger{o.Logger.With("part", "nats"), time.Now()}, false, false, false)
	}
	s.Start()
	e := &Server{s, opts.Password}
	if !s.ReadyForConnections(startWithin) {
		e.Stop()
		return nil, fmt.Errorf("the NATS server did not start within %v", startWithin)
	}
	if !s.JetStreamEnabled() {
		e.Stop()
		return nil, errors.New("the NATS server cannot keep anything: JetStream did not start, see the log")
	}
	return e, nil
}

// join makes it a node of a cluster.
func join(opts *server.Options, o Options) error {
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", o.Listen)
	}
	number, err := strconv.Atoi(port)
	if err != nil || number < 1 || number > 65535 {
		return fmt.Errorf("%q is not HOST:PORT", o.Listen)
	}
	if o.Cluster == "" || o.Name == "" {
		return errors.New("a node of a cluster needs the cluster's name and its own")
	}
	secure, err := mutual(o.Secret)
	if err != nil {
		return err
	}
	// Routes are opened only by a server that listens for clients: it does so for this machine alone, with a password that
	// nobody is told.
	opts.DontListen, opts.Host, opts.Port = false, "127.0.0.1", server.RANDOM_PORT
	opts.Username, opts.Password = user, rand.Text()
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
	return nil
}

// Connect returns a connection that stays inside the process.
func (e *Server) Connect(options ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{nats.InProcessServer(e.s), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond)}, options...)
	if e.password != "" {
		all = append(all, nats.UserInfo(user, e.password))
	}
	return nats.Connect("", all...)
}

// Connected tells whether a connection is there still, by its id: for tests, of what a process leaves behind that is killed.
func (e *Server) Connected(id uint64) bool { return e.s.GetClient(id) != nil }

// Room is how many bytes it keeps, and how many it may; 0: not known.
func (e *Server) Room() (used, limit int64) {
	info, err := e.s.Jsz(&server.JSzOptions{})
	if err != nil || info.Disabled {
		return 0, 0
	}
	return int64(info.Store), info.Config.MaxStore
}

// Ready waits until the node can take part: alone at once, in a cluster as soon as most nodes are there.
func (e *Server) Ready(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !e.s.JetStreamIsCurrent() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not enough nodes of the cluster can be reached: %w", ctx.Err())
		}
	}
	return nil
}

// Stop ends the server: what it leads in a cluster is given to others first.
func (e *Server) Stop() {
	if e.password != "" {
		e.s.LameDuckShutdown()
	}
	e.s.Shutdown()
	e.s.WaitForShutdown()
}

// Kill ends the server without handing anything over before: for tests.
func (e *Server) Kill() {
	e.s.DisableJetStream()
	e.s.Shutdown()
	e.s.WaitForShutdown()
}

// logger hands the server's words to slog, a step lower than the server thinks: a node that cannot be reached is no error of this
// one, and no news while all of them start. What worries people without a reason is left out: the password is of this process alone, and
// certificates are looked at by us.
type logger struct {
	l     *slog.Logger
	begun time.Time
}

func (l logger) Noticef(format string, a ...any) { l.l.Debug(fmt.Sprintf(format, a...)) }
func (l logger) Errorf(format string, a ...any)  { l.say(slog.LevelWarn, format, a) }
func (l logger) Fatalf(format string, a ...any)  { l.l.Error(fmt.Sprintf(format, a...)) }
func (l logger) Debugf(string, ...any)           {}
func (l logger) Tracef(string, ...any)           {}
func (l logger) Warnf(format string, a ...any)   { l.say(slog.LevelInfo, format, a) }

func (l logger) say(level slog.Level, format string, a []any) {
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

// What servers say, by how it begins.
var (
	needless = []string{"Plaintext passwords detected", "TLS certificate chain and hostname of solicited routes"}
	early    = []string{"Error trying to connect to route", "Waiting for routing to be established", "JetStream has not established contact with a meta leader"}
)
