package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/datadir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/jetstream"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/jetstream/nodes"
	"weir/internal/engine/jetstream/wire"
	"weir/internal/engine/journal"
	"weir/internal/settings"
)

// Files of --engine nats in the data directory.
const (
	natsDir  = "nats"
	nodeName = "nats.node"

	backupDir = "backup.tmp" // temporary copy of the data for a backup; see gather
)

// openWithin is how long opening the store may take. This includes the wait for the other nodes, but
// not the wait for space on a full disk.
const openWithin = time.Minute

// store is the storage below the engine: a journal, or NATS. The NATS server may run inside this
// process.
type store struct {
	settings *settings.Settings
	logger   *slog.Logger
	now      func() time.Time // nil: the system clock

	journal   *journal.Journal           // nil with --engine nats
	jetstream *jetstream.Engine          // nil without --engine nats
	nodes     *nodes.Nodes               // all nodes that share the store
	node      string                     // the name of this node
	server    *embedded.Server           // the NATS server inside this process; nil if there is none
	removed   atomic.Pointer[[]string]   // the nodes that were removed from the cluster
	fault     atomic.Pointer[error]      // why the NATS server has stopped storing data; nil if it has not
	connect   func() (*nats.Conn, error) // opens a further connection to NATS
	unsynced  atomic.Bool                // the NATS servers may acknowledge before they sync
	system    *nats.Conn                 // connection for asking the servers whether they sync; nil if the engine's connection can do it
	recheck   atomic.Pointer[func()]     // asks the servers again whether they sync
	lock      io.Closer
}

func (s *store) close() {
	if s.system != nil {
		s.system.Close()
	}
	if s.server != nil && s.stopped() != errHangs { // a server that hangs does not stop, and has synced what it has acknowledged
		s.server.Stop()
	}
	if s.lock != nil {
		s.lock.Close()
	}
}

// figures returns the statistics of the journal. They are all 0 while no journal is open.
func (s *store) figures() journal.Stats {
	if s.journal == nil {
		return journal.Stats{}
	}
	return s.journal.Stats()
}

// stats returns a function that returns the statistics of the journal. It returns nil if the store
// is not a journal.
func (s *store) stats() func() journal.Stats {
	if s.journal == nil {
		return nil
	}
	return s.journal.Stats
}

// open opens the engine that the settings name.
func (s *store) open(ctx context.Context) (engine.Engine, error) {
	if s.settings.Engine.Kind == settings.NATS {
		return s.openNATS(ctx)
	}
	return s.openJournal()
}

func (s *store) openJournal() (engine.Engine, error) {
	data := s.settings.Data
	if datadir.IsNode(data) {
		return nil, fmt.Errorf("%s belongs to a node with --engine nats; choose another directory with --data", data)
	}
	dir := datadir.Journal(data)
	if _, err := disk.MakeDir(dir); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	j, err := journal.Open(disk.OS(dir), journal.Options{
		Compress: s.settings.CompressCold, ScrubRate: int64(s.settings.ScrubRate) << 20, ScrubEvery: s.settings.ScrubEvery, Damaged: s.logDamage,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	s.journal = j
	return j, nil
}

// logDamage logs what the scrub found in a segment.
func (s *store) logDamage(findings []journal.Finding) {
	for _, f := range findings {
		level, text := slog.LevelError, "stored data is damaged: keep the backups that have an intact copy"
		if f.Records == 0 {
			level, text = slog.LevelWarn, "a file is damaged, but only in data that is no longer needed"
		}
		s.logger.Log(context.Background(), level, text, "what", datadir.Found(&f), "file", f.File, "offset", f.Offset, "error", f.Why)
	}
}

func (s *store) openNATS(ctx context.Context) (engine.Engine, error) {
	data := s.settings.Data
	if _, err := disk.MakeDir(data); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	if datadir.HasJournal(data) {
		return nil, fmt.Errorf("%s holds the data of --engine journal; choose another directory with --data", data)
	}
	var err error
	if s.lock, err = disk.OS(data).Lock(datadir.NodeLock); err != nil {
		return nil, fmt.Errorf("open %s: %w", data, err)
	}
	// A node that was killed while it took a backup has left the files of the backup.
	if err := os.RemoveAll(filepath.Join(data, backupDir)); err != nil {
		return nil, err
	}
	if s.node, err = node(data); err != nil {
		return nil, err
	}
	embeds := s.settings.Engine.Listen != ""
	if embeds {
		if err := s.startServer(ctx); err != nil { // before the time limit, because the disk may be full
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	options := jetstream.Options{Replicas: s.replicas(), Shards: s.settings.Engine.Shards, Logger: s.logger, Now: s.now}
	var nc *nats.Conn
	if embeds {
		if nc, err = s.joinCluster(ctx); err == nil {
			options.Room, options.Disk, options.Fault = s.server.Room, s.space, s.stopped
			options.Mover, options.Removed = s.server, s.takeRemoved
		}
	} else {
		nc, err = s.dialNATS(ctx)
	}
	if err != nil {
		return nil, err
	}
	e, err := jetstream.Open(ctx, nc, options)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("open the store in NATS: %w", err)
	}
	s.jetstream = e
	return e, nil
}

// serverOptions returns the options of the NATS server inside this process.
func (s *store) serverOptions() (o embedded.Options, err error) {
	e := s.settings.Engine
	o = embedded.Options{Dir: filepath.Join(s.settings.Data, natsDir), Name: s.node, Logger: s.logger}
	if len(e.Peers) > 0 {
		if o.Secret, err = os.ReadFile(e.Secret); err != nil {
			return o, fmt.Errorf("--cluster-secret: %w", err)
		}
		o.Cluster, o.Listen, o.Peers = e.Cluster, e.Listen, e.Peers
	}
	if o.Refused, err = readRemoved(s.settings.Data); err != nil {
		return o, err
	}
	if slices.Contains(o.Refused, s.node) {
		return o, s.errRemoved()
	}
	// Without Most, NATS would measure what is free. A server that started on a full disk would count as
	// full for good, and so the other nodes would refuse entries too.
	if _, size, err := disk.Space(s.settings.Data); err == nil {
		o.Most = size / 4 * 3
	}
	return o, nil
}

// joinCluster waits until the NATS server inside this process has joined the cluster, and connects
// to it.
func (s *store) joinCluster(ctx context.Context) (*nats.Conn, error) {
	s.logger.Info("waiting for the cluster", "peers", s.settings.Engine.Peers)
	if err := s.server.Ready(ctx); err != nil {
		return nil, err
	}
	s.connect = func() (*nats.Conn, error) { return s.server.Connect(s.natsOptions()...) }
	return s.connect()
}

// node returns the name of this node. The name is chosen once and stored, so that the other nodes
// recognise this node after a restart.
func node(data string) (string, error) {
	path := filepath.Join(data, nodeName)
	text, err := os.ReadFile(path)
	if name := strings.TrimSpace(string(text)); err == nil && name != "" {
		return name, nil
	} else if err == nil {
		return "", fmt.Errorf("read the name of this node: %s is empty; write the node's name into it, which weir node ls shows on another node", path)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the name of this node: %w", err)
	}
	name := "weir-" + strings.ToLower(rand.Text()[:12])
	if err := disk.Replace(path, []byte(name+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("store the name of this node: %w", err)
	}
	return name, nil
}

// dialNATS connects to servers that run elsewhere and checks that they sync before they acknowledge.
func (s *store) dialNATS(ctx context.Context) (*nats.Conn, error) {
	e := s.settings.Engine
	connect := func(creds string) (*nats.Conn, error) {
		options := s.natsOptions()
		if creds != "" {
			known, err := natsCredentials(creds)
			if err != nil {
				return nil, err
			}
			options = append(options, known)
		}
		return nats.Connect(strings.Join(e.NATSURLs, ","), options...)
	}
	s.connect = func() (*nats.Conn, error) { return connect(e.NATSCreds) }
	nc, err := s.connect()
	if err != nil {
		return nil, fmt.Errorf("connect to --nats-url: %w", err)
	}
	system := nc
	if e.SystemCreds != "" {
		if system, err = connect(e.SystemCreds); err != nil {
			nc.Close()
			return nil, fmt.Errorf("connect to --nats-url with --nats-system-creds: %w", err)
		}
		s.system = system
	}
	err = wire.Check(ctx, nc, system)
	if errors.Is(err, wire.ErrUnsynced) && e.AllowUnsynced {
		s.logger.Warn("a power cut may lose acknowledged batches: --nats-allow-unsynced is set", "error", err)
		s.unsynced.Store(true)
		err = nil
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	again := func() { s.checkAgain(nc, system) }
	s.recheck.Store(&again)
	return nc, nil
}

// checkAgain repeats the check of the servers after a reconnect, because the connection may now
// lead to a different server.
func (s *store) checkAgain(nc, system *nats.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), openWithin)
	defer cancel()
	switch err := wire.Check(ctx, nc, system); {
	case nc.IsClosed():
	case err == nil:
		s.unsynced.Store(false)
	case errors.Is(err, wire.ErrUnsynced):
		s.unsynced.Store(true)
		s.logger.Error("a power cut may lose acknowledged batches", "error", err)
	default:
		s.logger.Warn("checking the NATS servers failed", "error", err)
	}
}

// natsCredentials reads a file with credentials: either a NATS .creds file, or one line
// USER:PASSWORD.
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

// natsOptions returns the options of every connection to NATS.
func (s *store) natsOptions() []nats.Option {
	return []nats.Option{
		nats.Name("weir"), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond), nats.Timeout(5 * time.Second),
		// A server that is silent, because its machine is gone or because it hangs, is left after 20 s.
		// With the defaults of NATS it would take six minutes.
		nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(3),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				s.logger.Warn("lost the connection to NATS", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			s.logger.Info("reconnected to NATS")
			if again := s.recheck.Load(); again != nil {
				go (*again)()
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.logger.Warn("nats", "error", err) }),
	}
}
