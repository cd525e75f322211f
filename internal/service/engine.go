package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"weir"
	"weir/internal/admin"
	"weir/internal/datadir"
	"weir/internal/disk"
	"weir/internal/engine/jetstream"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/journal"
	"weir/internal/settings"
)

// Files of --engine nats in the data directory.
const (
	natsDir  = "nats"
	natsLock = "nats.lock"
	nodeName = "nats.node"
)

// openWithin is how long opening the store may take, including the wait for the other nodes.
const openWithin = time.Minute

// store is what the engine runs on: a journal, or NATS, possibly with a server inside this process.
type store struct {
	journal   *journal.Journal           // nil with --engine nats
	jetstream *jetstream.Engine          // nil without --engine nats
	nodes     *jetstream.Nodes           // the nodes that share it
	node      string                     // the name of this node
	server    *embedded.Server           // nil with --nats-url
	connect   func() (*nats.Conn, error) // makes another connection
	unsynced  atomic.Bool                // the servers may acknowledge before they sync
	system    *nats.Conn                 // for asking whether they do; nil if the engine's connection serves
	recheck   atomic.Pointer[func()]     // asks again
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

// figures are the statistics of the journal; all 0 while there is none.
func (s *store) figures() journal.Stats {
	if s.journal == nil {
		return journal.Stats{}
	}
	return s.journal.Stats()
}

// stats is the source of the journal's statistics; nil without a journal.
func (s *store) stats() func() journal.Stats {
	if s.journal == nil {
		return nil
	}
	return s.journal.Stats
}

// backup prepares a backup of the running server for the admin socket.
func (svc *Service) backup(ctx context.Context) (admin.Backup, error) {
	if svc.store.journal == nil {
		return nil, weir.Errorf(weir.InvalidRequest, "a server with --engine nats is backed up with the tools of NATS: see docs/cluster.md")
	}
	snap, err := svc.store.journal.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return datadir.NewArchive(svc.settings.Data, snap)
}

// migrate copies the data directory of a single server into the store of this cluster. It writes as
// another process would, and the hub of this node follows.
func (svc *Service) migrate(ctx context.Context, from string, tell func(admin.Migration)) (admin.Migration, error) {
	if svc.store.jetstream == nil {
		return admin.Migration{}, weir.Errorf(weir.InvalidRequest, "this server is not part of a cluster: name the data directory of a cluster's node with --data")
	}
	nc, err := svc.store.connect()
	if err != nil {
		return admin.Migration{}, err
	}
	// The store exists, since this node runs on it. Any number of replicas is accepted then, and 1
	// fits every cluster.
	to, err := jetstream.Open(ctx, nc, jetstream.Options{Replicas: 1, Logger: svc.logger})
	if err != nil {
		nc.Close()
		return admin.Migration{}, err
	}
	defer to.Close()
	report := func(c datadir.Copied) admin.Migration {
		return admin.Migration{Documents: c.Documents, Streams: c.Streams, Batches: c.Batches, Bytes: c.Bytes}
	}
	done, err := datadir.CopyInto(ctx, to, from, func(c datadir.Copied) { tell(report(c)) })
	return report(done), err
}

// openEngine opens the engine that the settings name.
func (svc *Service) openEngine(ctx context.Context) error {
	data := svc.settings.Data
	if svc.options.Engine != nil {
		svc.engine = svc.options.Engine
		return nil
	}
	if svc.settings.Engine.Kind == settings.NATS {
		return svc.openNATS(ctx)
	}
	if _, err := os.Stat(filepath.Join(data, natsLock)); err == nil {
		return fmt.Errorf("%s belongs to a node with --engine nats; choose another directory with --data", data)
	}
	dir := datadir.Journal(data)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	j, err := journal.Open(disk.OS(dir), journal.Options{})
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	svc.engine, svc.store.journal = j, j
	return nil
}

func (svc *Service) openNATS(ctx context.Context) error {
	data := svc.settings.Data
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	if datadir.HasJournal(data) {
		return fmt.Errorf("%s holds the data of --engine journal; choose another directory with --data", data)
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
	options := jetstream.Options{Replicas: svc.settings.Engine.Replicas, Shards: svc.settings.Engine.Shards, Logger: svc.logger}
	var nc *nats.Conn
	if svc.settings.Engine.Listen != "" {
		if len(svc.settings.Engine.Peers) == 0 {
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

// startNATS runs a NATS server inside this process and waits until it has joined the cluster.
func (svc *Service) startNATS(ctx context.Context) (*nats.Conn, error) {
	s := svc.settings.Engine
	o := embedded.Options{Dir: filepath.Join(svc.settings.Data, natsDir), Logger: svc.logger}
	if len(s.Peers) > 0 {
		var err error
		if o.Secret, err = os.ReadFile(s.Secret); err != nil {
			return nil, fmt.Errorf("--cluster-secret: %w", err)
		}
		o.Name, o.Cluster, o.Listen, o.Peers = svc.store.node, s.Cluster, s.Listen, s.Peers
	}
	var err error
	if svc.store.server, err = embedded.Start(o); err != nil {
		return nil, err
	}
	svc.logger.Info("waiting for the cluster", "peers", s.Peers)
	if err := svc.store.server.Ready(ctx); err != nil {
		return nil, err
	}
	svc.store.connect = func() (*nats.Conn, error) { return svc.store.server.Connect(svc.natsOptions()...) }
	return svc.store.connect()
}

// node is the name of this node. It is chosen once and stored, so that the others recognise the node
// after a restart.
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
		return "", fmt.Errorf("store the name of this node: %w", err)
	}
	return name, nil
}

// dialNATS connects to servers that run elsewhere and checks that they sync before they acknowledge.
func (svc *Service) dialNATS(ctx context.Context) (*nats.Conn, error) {
	s := svc.settings.Engine
	connect := func(creds string) (*nats.Conn, error) {
		options := svc.natsOptions()
		if creds != "" {
			known, err := natsCredentials(creds)
			if err != nil {
				return nil, err
			}
			options = append(options, known)
		}
		return nats.Connect(strings.Join(s.NATSURLs, ","), options...)
	}
	svc.store.connect = func() (*nats.Conn, error) { return connect(s.NATSCreds) }
	nc, err := svc.store.connect()
	if err != nil {
		return nil, fmt.Errorf("connect to --nats-url: %w", err)
	}
	system := nc
	if s.SystemCreds != "" {
		if system, err = connect(s.SystemCreds); err != nil {
			nc.Close()
			return nil, fmt.Errorf("connect to --nats-url with --nats-system-creds: %w", err)
		}
		svc.store.system = system
	}
	err = jetstream.Check(ctx, nc, system)
	if errors.Is(err, jetstream.ErrUnsynced) && s.AllowUnsynced {
		svc.logger.Warn("a power cut may lose acknowledged batches: --nats-allow-unsynced is set", "error", err)
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

// checkAgain repeats the check after a reconnect, which may have led to another server.
func (svc *Service) checkAgain(nc, system *nats.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), openWithin)
	defer cancel()
	switch err := jetstream.Check(ctx, nc, system); {
	case nc.IsClosed():
	case err == nil:
		svc.store.unsynced.Store(false)
	case errors.Is(err, jetstream.ErrUnsynced):
		svc.store.unsynced.Store(true)
		svc.logger.Error("a power cut may lose acknowledged batches", "error", err)
	default:
		svc.logger.Warn("checking the NATS servers failed", "error", err)
	}
}

// natsCredentials reads a file of credentials: a NATS .creds file, or one line USER:PASSWORD.
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
		return nil, fmt.Errorf("%s is neither a NATS .creds file nor one line USER:PASSWORD", file)
	}
	return nats.UserInfo(user, password), nil
}

// natsOptions are the options of every connection.
func (svc *Service) natsOptions() []nats.Option {
	return []nats.Option{
		nats.Name("weir"), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond), nats.Timeout(5 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				svc.logger.Warn("lost the connection to NATS", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			svc.logger.Info("reconnected to NATS")
			if again := svc.store.recheck.Load(); again != nil {
				go (*again)()
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { svc.logger.Warn("nats", "error", err) }),
	}
}
