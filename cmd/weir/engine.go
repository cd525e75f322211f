package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"weir/internal/disk"
	"weir/internal/engine/jetstream"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/journal"
)

// engineSettings are the flags of serve about where everything is kept.
type engineSettings struct {
	kind          string
	natsURLs      []string
	natsCreds     string
	systemCreds   string
	replicas      int
	shards        int
	allowUnsynced bool
	cluster       string
	listen        string
	peers         []string
	secret        string
}

const (
	onJournal = "journal"
	onNATS    = "nats"

	natsDir    = "nats" // in the data directory
	natsLock   = "nats.lock"
	nodeName   = "nats.node"
	openWithin = time.Minute // for the other nodes to come, too
)

func (e *engineSettings) flags(f *pflag.FlagSet) {
	f.StringVar(&e.kind, "engine", onJournal, "where everything is kept: journal (in the data directory) or nats (NATS JetStream, for more than one node)")
	f.StringSliceVar(&e.natsURLs, "nats-url", nil, "`URLs` of the NATS servers to use with --engine nats, comma-separated; credentials go into --nats-creds")
	f.StringVar(&e.natsCreds, "nats-creds", "", "`file` with the credentials for --nats-url: as the tools of NATS write them, or a line USER:PASSWORD")
	f.StringVar(&e.systemCreds, "nats-system-creds", "", "`file` with credentials of the system account, to see that the servers of --nats-url sync what they acknowledge (default: --nats-creds)")
	f.IntVar(&e.replicas, "nats-replicas", 3, "how many NATS servers keep each message, of a store that does not exist yet; a node without --cluster-peers has 1")
	f.IntVar(&e.shards, "nats-shards", jetstream.DefaultShards, "how many JetStream streams share the streams of ours, of a store that does not exist yet: fewer sync more at once, more use more servers")
	f.BoolVar(&e.allowUnsynced, "nats-allow-unsynced", false, "use servers of --nats-url that acknowledge before they sync: a power cut may take acknowledged batches")
	f.StringVar(&e.cluster, "cluster-name", "weir", "`name` of the cluster that the NATS server inside this process is part of")
	f.StringVar(&e.listen, "cluster-listen", "", "`address` where the NATS server inside this process hears the other nodes (default: --nats-url is used)")
	f.StringSliceVar(&e.peers, "cluster-peers", nil, "`addresses` of --cluster-listen of the other nodes, comma-separated")
	f.StringVar(&e.secret, "cluster-secret", "", "`file` with what all nodes know and nobody else: at least 32 random bytes; needed with --cluster-peers")
}

// check refuses what cannot be, and names the flags.
func (e *engineSettings) check(must func(ok bool, format string, a ...any)) {
	must(e.kind == onJournal || e.kind == onNATS, "--engine %q: not journal or nats", e.kind)
	if e.kind == onJournal {
		must(len(e.natsURLs) == 0, "--nats-url without --engine nats")
		must(e.listen == "", "--cluster-listen without --engine nats")
		must(len(e.peers) == 0, "--cluster-peers without --engine nats")
		return
	}
	must(len(e.natsURLs) > 0 || e.listen != "", "--engine nats without --nats-url or --cluster-listen: it has no server")
	must(len(e.natsURLs) == 0 || e.listen == "", "--nats-url and --cluster-listen: one or the other")
	must(e.replicas >= 1 && e.replicas <= 5, "--nats-replicas %d: not 1 to 5", e.replicas)
	must(e.shards >= 1 && e.shards <= jetstream.MaxShards, "--nats-shards %d: not 1 to %d", e.shards, jetstream.MaxShards)
	for _, u := range e.natsURLs {
		parsed, err := url.Parse(u)
		good := err == nil && parsed.Host != "" && (parsed.Scheme == "nats" || parsed.Scheme == "tls")
		must(good, "--nats-url: not an address such as nats://127.0.0.1:4222")
		must(!good || parsed.User == nil, "--nats-url: credentials would be shown with the configuration: use --nats-creds")
	}
	must(e.listen != "" || len(e.peers) == 0, "--cluster-peers without --cluster-listen")
	must(e.secret != "" || len(e.peers) == 0, "--cluster-peers without --cluster-secret")
	must(e.cluster != "" && !strings.ContainsAny(e.cluster, " .*>\t"), "--cluster-name %q: empty, or with a space, dot, * or >", e.cluster)
	for _, a := range append([]string{e.listen}, e.peers...) {
		_, port, err := net.SplitHostPort(a)
		must(a == "" || err == nil && port != "", "--cluster-listen, --cluster-peers %q: not HOST:PORT", a)
	}
}

// store is what is behind the engine: a journal, or NATS and perhaps a server of it.
type store struct {
	journal   *journal.Journal           // nil with --engine nats
	jetstream *jetstream.Engine          // nil without it
	nodes     *jetstream.Nodes           // that share it
	node      string                     // the name of this one
	server    *embedded.Server           // nil without one inside
	connect   func() (*nats.Conn, error) // another connection to it
	unsynced  atomic.Bool                // the servers may acknowledge what a power cut undoes
	system    *nats.Conn                 // to ask them whether they do; nil: the engine's own is used
	recheck   atomic.Pointer[func()]     // asks them again
	lock      io.Closer
}

func (s *store) close() {
	if s.system != nil {
		s.system.Close()
	}
	if s.server != nil {
		s.server.Stop()
	}
	if s.lock != nil {
		s.lock.Close()
	}
}

// figures are the numbers of the journal; all 0 when there is none, or none yet.
func (s *store) figures() journal.Stats {
	if s.journal == nil {
		return journal.Stats{}
	}
	return s.journal.Stats()
}

// stats is where the numbers of the journal are; nil when there is none.
func (s *store) stats() func() journal.Stats {
	if s.journal == nil {
		return nil
	}
	return s.journal.Stats
}

var errNoBackup = errors.New("with --engine nats a backup is made with the tools of NATS: see docs/operating.md")

// openEngine opens what keeps everything.
func (svc *service) openEngine(ctx context.Context) error {
	data := svc.settings.data
	if svc.settings.engine.kind == onNATS {
		return svc.openNATS(ctx)
	}
	if _, err := os.Stat(filepath.Join(data, natsLock)); err == nil {
		return fmt.Errorf("%s belongs to a node of --engine nats", data)
	}
	dir := filepath.Join(data, journalDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	j, err := journal.Open(disk.OS(dir), journal.Options{})
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	svc.engine, svc.store.journal = j, j
	return nil
}

func (svc *service) openNATS(ctx context.Context) error {
	data := svc.settings.data
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(data, journalDir)); err == nil {
		return fmt.Errorf("%s holds the data of --engine journal: choose another directory with --data", data)
	}
	var err error
	if svc.store.lock, err = disk.OS(data).Lock(natsLock); err != nil {
		return fmt.Errorf("open %s: %w", data, err)
	}
	if svc.store.node, err = node(data); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	options := jetstream.Options{Replicas: svc.settings.engine.replicas, Shards: svc.settings.engine.shards, Logger: svc.logger}
	var nc *nats.Conn
	if svc.settings.engine.listen != "" {
		if len(svc.settings.engine.peers) == 0 {
			options.Replicas = 1
		}
		if nc, err = svc.startNATS(ctx); err == nil {
			options.Room = svc.store.server.Room
		}
	} else {
		nc, err = svc.dialNATS(ctx)
	}
	if err != nil {
		return err
	}
	e, err := jetstream.Open(ctx, nc, options)
	if err != nil {
		nc.Close()
		return fmt.Errorf("open the store in NATS: %w", err)
	}
	svc.engine, svc.store.jetstream = e, e
	return nil
}

// startNATS runs a NATS server inside this process and waits until it can take part.
func (svc *service) startNATS(ctx context.Context) (*nats.Conn, error) {
	s := svc.settings.engine
	o := embedded.Options{Dir: filepath.Join(svc.settings.data, natsDir), Logger: svc.logger}
	if len(s.peers) > 0 {
		var err error
		if o.Secret, err = os.ReadFile(s.secret); err != nil {
			return nil, fmt.Errorf("--cluster-secret: %w", err)
		}
		o.Name, o.Cluster, o.Listen, o.Peers = svc.store.node, s.cluster, s.listen, s.peers
	}
	var err error
	if svc.store.server, err = embedded.Start(o); err != nil {
		return nil, err
	}
	svc.logger.Info("waiting for the cluster", "peers", s.peers)
	if err := svc.store.server.Ready(ctx); err != nil {
		return nil, err
	}
	svc.store.connect = func() (*nats.Conn, error) { return svc.store.server.Connect(svc.natsOptions()...) }
	return svc.store.connect()
}

// node is the name of this node: it is made up once, so that the others know it again.
func node(data string) (string, error) {
	path := filepath.Join(data, nodeName)
	text, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the name of this node: %w", err)
	}
	name := "weir-" + strings.ToLower(rand.Text()[:12])
	if err := os.WriteFile(path, []byte(name+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the name of this node: %w", err)
	}
	return name, nil
}

// dialNATS connects to servers that run elsewhere, and sees that they keep what they promise.
func (svc *service) dialNATS(ctx context.Context) (*nats.Conn, error) {
	s := svc.settings.engine
	connect := func(creds string) (*nats.Conn, error) {
		options := svc.natsOptions()
		if creds != "" {
			known, err := natsCredentials(creds)
			if err != nil {
				return nil, err
			}
			options = append(options, known)
		}
		return nats.Connect(strings.Join(s.natsURLs, ","), options...)
	}
	svc.store.connect = func() (*nats.Conn, error) { return connect(s.natsCreds) }
	nc, err := svc.store.connect()
	if err != nil {
		return nil, fmt.Errorf("connect to --nats-url: %w", err)
	}
	system := nc
	if s.systemCreds != "" {
		if system, err = connect(s.systemCreds); err != nil {
			nc.Close()
			return nil, fmt.Errorf("connect to --nats-url with --nats-system-creds: %w", err)
		}
		svc.store.system = system
	}
	err = jetstream.Check(ctx, nc, system)
	if errors.Is(err, jetstream.ErrUnsynced) && s.allowUnsynced {
		svc.logger.Warn("acknowledged batches may be lost in a power cut: --nats-allow-unsynced", "error", err)
		svc.store.unsynced.Store(true)
		err = nil
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	again := func() { svc.checkAgain(nc, system) }
	svc.store.recheck.Store(&again)
	return nc, nil
}

// checkAgain sees whether the servers still keep what they promised: it may be another one that we are connected to by now.
func (svc *service) checkAgain(nc, system *nats.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), openWithin)
	defer cancel()
	switch err := jetstream.Check(ctx, nc, system); {
	case nc.IsClosed():
	case err == nil:
		svc.store.unsynced.Store(false)
	case errors.Is(err, jetstream.ErrUnsynced):
		svc.store.unsynced.Store(true)
		svc.logger.Error("acknowledged batches may be lost in a power cut", "error", err)
	default:
		svc.logger.Warn("the NATS servers could not be looked at", "error", err)
	}
}

// natsCredentials are those in a file: of an operator's, as the tools of NATS write them, or a line USER:PASSWORD.
func natsCredentials(file string) (nats.Option, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	line := strings.TrimSpace(string(text))
	if strings.Contains(line, "BEGIN NATS USER JWT") {
		return nats.UserCredentials(file), nil
	}
	user, password, ok := strings.Cut(line, ":")
	if !ok || user == "" || strings.ContainsAny(line, "\r\n") {
		return nil, fmt.Errorf("%s holds neither credentials as the tools of NATS write them nor a line USER:PASSWORD", file)
	}
	return nats.UserInfo(user, password), nil
}

// natsOptions are what every connection has.
func (svc *service) natsOptions() []nats.Option {
	return []nats.Option{
		nats.Name("weir"), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond), nats.Timeout(5 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				svc.logger.Warn("the connection to NATS is gone", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			svc.logger.Info("connected to NATS again")
			if again := svc.store.recheck.Load(); again != nil {
				go (*again)()
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { svc.logger.Warn("nats", "error", err) }),
	}
}
