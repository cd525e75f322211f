// Package jetstream is the engine for more than one machine, on NATS JetStream. Any number of
// processes serve the same logs, and an acknowledgement means that a majority of the replicas has
// the data on disk. DESIGN.md says which feature of JetStream keeps which promise, and defines the
// words used here.
package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/copies"
	"weir/internal/engine/jetstream/documents"
	"weir/internal/engine/jetstream/nodes"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/streams"
	"weir/internal/engine/jetstream/wire"
)

// Options configure a store.
type Options struct {
	Name     string // prefix of the store's JetStream streams and subjects; default weir
	Replicas int    // number of copies of each JetStream stream; used only when the store is created; default 1
	// Shards is the number of shards; used only when the store is created; default streams.DefaultShards.
	// The method Grow adds more.
	Shards int
	// Patience is how long a call waits for the servers before it returns ErrUnavailable; default
	// 10 s.
	Patience time.Duration
	Logger   *slog.Logger
	Now      func() time.Time // the clock of this node; default time.Now

	// Room returns how many bytes the NATS server inside this process holds, and how many it may
	// hold (0: no limit). If Room is nil, the figures of the NATS account are used.
	Room func() (used, limit int64)
	// Disk returns the free bytes and the size of the file system of the NATS server inside this
	// process. If Disk is nil, the engine does not know the file system.
	Disk func() (free, size int64, err error)
	// Fault returns why the NATS server inside this process has stopped storing data, or nil if it
	// stores data. Fault may be nil.
	Fault func() error
	// Mover moves copies between the NATS servers. If Mover is nil, Copies cannot move them.
	Mover copies.Mover
	// Removed receives the names of all nodes that were removed from the cluster, at the start if
	// there are any, and after every removal. It must not call the engine. Removed may be nil.
	Removed func(names []string)
	// Beside is another engine of this process that uses the same store and has joined the cluster.
	// The new engine does not join, but it knows from Beside which versions all nodes can read.
	// Beside may be nil.
	Beside *Engine

	// The fields below are set by tests only. To follow a log means to receive its messages as soon
	// as they are stored; see attend.go.
	attempt time.Duration // time to wait for the answer to one write before sending it again
	// hearing is how long to wait until the subscription (package line) delivers messages, before
	// reading them with a request.
	hearing time.Duration
	turn    time.Duration // longest time that this node waits for its turn to write to a log, and longest time that it leaves the log to other nodes
	sure    time.Duration // how long a log that is not followed may go without proof that this node has missed no message; then the log is read again
	lease   time.Duration // how long this node may rely on its copy of the documents after proof that the copy is up to date
	rivalry time.Duration // how long a log stays followed after another node wrote to it
	silence time.Duration // how long this node may hear nothing about documents before it reads all of them again
	reads   byte          // newest version of messages that this node reads
	format  uint32        // newest format of a store that this node reads
}

func (o *Options) defaults() {
	o.Name = cmp.Or(o.Name, "weir")
	o.Replicas = max(o.Replicas, 1)
	o.Shards = cmp.Or(o.Shards, streams.DefaultShards)
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	o.attempt = cmp.Or(o.attempt, wire.Timeout)
	o.hearing = cmp.Or(o.hearing, 2*wire.Beat)
	o.turn = cmp.Or(o.turn, turnMost)
	o.sure = cmp.Or(o.sure, sureFor)
	o.lease = cmp.Or(o.lease, leaseFor)
	o.rivalry = cmp.Or(o.rivalry, rivalry)
	o.reads = cmp.Or(o.reads, record.Newest)
	o.format = cmp.Or(o.format, streams.Grown)
}

// Engine is one process's view of a store that other processes share.
type Engine struct {
	engine.Documents                // docs
	Nodes            *nodes.Nodes   // the processes that share the store
	Copies           *copies.Copies // which servers have copies of the store

	opts    Options
	client  *wire.Client
	streams *streams.Streams
	docs    *documents.Documents
	space   *nodes.Space
	layout  atomic.Pointer[layout]  // which shard holds which log
	removed atomic.Pointer[removed] // nil if no node was removed
	outage  atomic.Pointer[error]   // why the servers cannot be used at the moment; nil if they can
	crew    *crew
	counts  counts
	marked  bool // all streams of the store have a marker
	// node is a random number that identifies this process. The ids of groups (see group.go) start
	// from this number, so they are unique.
	node   uint64
	groups atomic.Uint64

	cancel  context.CancelFunc // ends client.Life
	work    sync.WaitGroup     // goroutines of purges and other background work, for which Close waits
	probing sync.WaitGroup     // the goroutines of periodic tasks

	mu     sync.Mutex
	closed bool
	ending chan struct{} // closed when Close begins
	over   chan struct{} // closed when Close is done
	logs   map[engine.LogID]*log
	later  map[engine.LogID]purging // purges of trimmed entries, which wait until all nodes have received the trim
}

var _ engine.Engine = (*Engine)(nil)

// Open opens the store behind a connection and creates it if it does not exist. If Open succeeds,
// the engine owns the connection. Call wire.Check before Open to verify the servers.
func Open(ctx context.Context, nc *nats.Conn, o Options) (*Engine, error) {
	servers, err := wire.Connect(nc)
	if err != nil {
		return nil, err
	}
	return OpenOn(ctx, servers, o)
}

// OpenOn is like Open, for servers that need not be behind a connection. If it succeeds, the engine
// owns the servers and closes them.
func OpenOn(ctx context.Context, servers wire.Servers, o Options) (*Engine, error) {
	o.defaults()
	e := &Engine{opts: o, ending: make(chan struct{}), over: make(chan struct{}), logs: map[engine.LogID]*log{}, later: map[engine.LogID]purging{}}
	var id [8]byte
	rand.Read(id[:])
	e.node = binary.BigEndian.Uint64(id[:])
	e.crew = newCrew(e.ending)
	e.client = &wire.Client{Servers: servers, Patience: o.Patience, Attempt: o.attempt}
	e.client.Waits.Store(uint32(e.node))
	e.client.Life, e.cancel = context.WithCancel(context.Background())
	e.streams = streams.New(e.client, streams.Options{Name: o.Name, Replicas: o.Replicas, Shards: o.Shards, Format: o.format, Logger: o.Logger})
	e.Nodes = nodes.New(e.client, nodes.Options{Store: o.Name, Now: o.Now, Reads: o.reads, Format: o.format, Removed: e.isRemoved, Logger: o.Logger})
	e.Copies = copies.New(e.client, copies.Options{Names: e.streamNames, Mover: o.Mover, Removed: e.isRemoved, Remove: e.remember, MayRemove: e.mayChangeFormat})
	stream, prefix := e.streams.Docs()
	e.docs = documents.New(e.client, documents.Options{
		Stream: stream, Prefix: prefix, Silence: o.silence, Logger: o.Logger, Full: e.full,
		Admits: func(ctx context.Context, bytes int) error { return e.space.Admits(ctx, bytes) }, Usable: e.usable, Background: e.background,
		Own:     map[string]func(wire.Stored){streams.ShardsName: e.takeGenerations, removedName: e.takeRemoved},
		Deleted: e.dropOpen, End: e.dropLog,
	})
	e.Documents = e.docs
	if err := e.begin(ctx); err != nil {
		e.cancel()
		e.quit()
		return nil, err
	}
	e.space.Measure(ctx)
	for _, task := range []func(){e.probe, e.renew, e.tick, e.endOrphans} {
		e.probing.Go(task)
	}
	return e, nil
}

// begin creates missing JetStream streams and subscribes to the documents. The engine subscribes to
// a shard only when a log needs it.
func (e *Engine) begin(ctx context.Context) (err error) {
	e.space, err = nodes.NewSpace(e.client, nodes.SpaceOptions{
		Store: e.opts.Name, Node: e.node, Replicas: e.opts.Replicas, Room: e.opts.Room, Disk: e.opts.Disk, Logger: e.opts.Logger,
	})
	if err != nil {
		return err
	}
	if err := e.hearTurns(); err != nil {
		return err
	}
	all, err := e.streams.Ensure(ctx)
	if err != nil {
		return err
	}
	// A store of an earlier version may be full. It gets its markers when it is opened again and has
	// space.
	if err := e.streams.EnsureMarkers(ctx, all.Count()); errors.Is(err, engine.ErrFull) {
		e.opts.Logger.Warn("the streams of the store could not be marked", "error", err)
	} else if err != nil {
		return err
	} else {
		e.marked = true
	}
	have := &layout{Generations: all}
	for i := range all.Count() {
		s, err := openShard(ctx, e, i)
		if err != nil {
			return err
		}
		have.shards = append(have.shards, s)
	}
	e.layout.Store(have)
	return e.docs.Begin(ctx)
}

// quit ends the subscriptions to the documents and the shards.
func (e *Engine) quit() {
	e.docs.Quit()
	if all := e.layout.Load(); all != nil {
		for _, s := range all.shards {
			s.End()
		}
	}
}

// usable returns nil while the store may be used.
func (e *Engine) usable(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.ErrClosed
	}
	return ctx.Err()
}

// Open opens a log and attaches a judge, which applies the rules of the stream.
func (e *Engine) Open(ctx context.Context, id engine.LogID, judge engine.Judge) (engine.Log, error) {
	if err := e.usable(ctx); err != nil {
		return nil, err
	}
	if !e.docs.HasLog(id) {
		if err := e.docs.Sync(ctx); err != nil { // another process may have just created the document
			return nil, err
		}
		if !e.docs.HasLog(id) {
			return nil, engine.ErrDropped
		}
	}
	l := newLog(e, id, judge)
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, engine.ErrClosed
	}
	if e.logs[id] != nil {
		e.mu.Unlock()
		panic(fmt.Sprintf("jetstream: log %d is already open", id))
	}
	e.logs[id] = l
	e.mu.Unlock()
	begun := time.Now()
	resumed, err := opening{l}.resume(ctx)
	if err == nil && !resumed {
		err = opening{l}.restore(ctx)
	}
	if err != nil {
		l.abandon()
		if errors.Is(err, engine.ErrDropped) {
			return nil, engine.ErrDropped
		}
		return nil, fmt.Errorf("restore log %d: %w", id, err)
	}
	l.start(begun)
	if !resumed {
		e.counts.opens.Add(1)
		l.purgeLater() // the process that trimmed the log last may have crashed before it purged the log
	}
	if !e.docs.HasLog(id) {
		l.drop() // the document was deleted while the log was read
	}
	return l, nil
}

// opened returns the open log with this id, or nil.
func (e *Engine) opened(id engine.LogID) *log {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.logs[id]
}

// inOrder returns the open logs, sorted by id, so that a simulation handles them in the same order
// each time. The caller holds e.mu.
func (e *Engine) inOrder() []*log {
	return slices.SortedFunc(maps.Values(e.logs), func(a, b *log) int { return cmp.Compare(a.id, b.id) })
}

func (e *Engine) detach(l *log) {
	l.mu.Lock()
	l.unjoin()
	l.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.logs[l.id] == l {
		delete(e.logs, l.id)
	}
}

// background runs f in a goroutine that Close waits for. It returns false if the engine is closed.
func (e *Engine) background(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.work.Go(f)
	}
	return !e.closed
}

// perEntry is the size of an entry of the index, in bytes.
const perEntry = 48

// Held implements engine.Engine. A node uses no memory for a log that it has not opened.
func (e *Engine) Held(id engine.LogID) int64 {
	l := e.opened(id)
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return 0
	}
	return int64(len(l.index.entries)) * perEntry
}

// Outline implements engine.Engine. A node knows nothing of a log that it has not opened.
func (e *Engine) Outline(id engine.LogID) (engine.Outline, bool) {
	return engine.Outline{Memory: e.Held(id)}, false
}

// Status returns Ready while the node reaches a server that can store data and has space.
func (e *Engine) Status() engine.Status {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	switch {
	case closed:
		return engine.Status{State: engine.Closed, Reason: engine.ErrClosed}
	case !e.client.Connected():
		return engine.Status{State: engine.Unreachable, Reason: fmt.Errorf("%w: no connection to a NATS server", engine.ErrUnavailable)}
	}
	// A full disk comes first: it may be the reason for the other states.
	if why := e.space.DiskFull(); why != nil {
		return engine.Status{State: engine.Full, Reason: why}
	}
	if why := e.outage.Load(); why != nil {
		return engine.Status{State: engine.Unreachable, Reason: *why}
	}
	if e.opts.Fault != nil {
		if why := e.opts.Fault(); why != nil {
			return engine.Status{State: engine.Unreachable, Reason: fmt.Errorf("%w: %w", engine.ErrUnavailable, why)}
		}
	}
	if why := e.Nodes.ClockFault(); why != nil {
		return engine.Status{State: engine.Skewed, Reason: why}
	}
	if why := e.space.Full(); why != nil {
		return engine.Status{State: engine.Full, Reason: why}
	}
	return engine.Status{}
}

// full reports whether the store has no space, not even for a fence.
func (e *Engine) full() bool { return e.Status().State == engine.Full }

// chunk returns how many bytes of payload fit into one message.
func (e *Engine) chunk() record.Chunk { return record.ChunkOf(e.client.MaxPayload()) }

// common returns the newest version of messages that all nodes read.
func (e *Engine) common() byte {
	if e.opts.Beside != nil {
		return e.opts.Beside.common()
	}
	return e.Nodes.Common()
}

// Counts are the numbers of events since the engine was opened.
type Counts struct {
	Opens     uint64 // logs that were opened without their state in memory, so that all their headers were read
	Conflicts uint64 // writes to a log that came too late, because another node had written first
	Resends   uint64 // writes to a log that were sent again, because no server answered in time
}

type counts struct{ opens, conflicts, resends atomic.Uint64 }

// Counts returns the numbers of events so far.
func (e *Engine) Counts() Counts {
	return Counts{Opens: e.counts.opens.Load(), Conflicts: e.counts.conflicts.Load(), Resends: e.counts.resends.Load()}
}

// Close waits for the calls in flight, but for at most Patience, and closes the connection.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		<-e.over
		return nil
	}
	e.closed = true
	close(e.ending)
	open := e.inOrder()
	e.mu.Unlock()
	var all sync.WaitGroup
	for _, l := range open {
		all.Go(func() { l.Close() })
	}
	all.Wait()
	e.work.Wait()
	e.quit()
	e.cancel()
	e.probing.Wait()
	e.client.Close()
	close(e.over)
	return nil
}
