// Package jetstream is the engine for more than one machine, on NATS JetStream: any number of processes serve the same
// logs, and an answer means that most of the replicas have it on disk. DESIGN.md beside it says which feature of
// JetStream keeps which promise.
package jetstream

import (
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
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

// DefaultShards is few: what waits for one shard is synced together, and every shard costs its replicas and every node something. A
// cluster of many servers wants more of them, MaxShards at most.
const (
	DefaultShards = 4
	MaxShards     = 1024
)

// Options are what a store needs beside a connection.
type Options struct {
	Name     string        // what its streams and subjects begin with; weir
	Replicas int           // of a store that does not exist yet; 1
	Shards   int           // of a store that does not exist yet: JetStream streams that share the logs; DefaultShards
	Patience time.Duration // how long an answer may take before it is ErrUnavailable; 10 s
	Logger   *slog.Logger

	// Room tells how many bytes the server inside this process holds, and how many it may; nil, or a limit of 0: not known.
	Room func() (used, limit int64)

	attempt time.Duration // how long the answer to one write is waited for
	hearing time.Duration // how long what others wrote is waited for before it is read
	turn    time.Duration // how long a log is left to others that want to write to it
	sure    time.Duration // how long what is known of a log that is not followed may be relied on
	rivalry time.Duration // how long a log is followed after others wrote to it
}

func (o *Options) defaults() {
	if o.Name == "" {
		o.Name = "weir"
	}
	o.Replicas = max(o.Replicas, 1)
	if o.Shards == 0 {
		o.Shards = DefaultShards
	}
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
	if o.attempt == 0 {
		o.attempt = attempt
	}
	if o.hearing == 0 {
		o.hearing = 2 * beat
	}
	if o.turn == 0 {
		o.turn = turnMost
	}
	if o.sure == 0 {
		o.sure = sureFor
	}
	if o.rivalry == 0 {
		o.rivalry = rivalry
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Engine is one process's view of a store.
type Engine struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	opts   Options
	docs   documents
	shards []*shard

	room   room
	outage atomic.Pointer[error] // why nothing can be written, when that is so
	node   uint64                // who we are, at random: half of a group's name
	groups atomic.Uint64

	ctx     context.Context // ends when the connection is given up
	cancel  context.CancelFunc
	work    sync.WaitGroup // purges
	probing sync.WaitGroup

	mu     sync.Mutex
	closed bool
	ending chan struct{} // closed when Close begins
	over   chan struct{} // closed when it is done
	logs   map[engine.LogID]*log
	later  map[engine.LogID]purging
}

var _ engine.Shared = (*Engine)(nil)

// Open opens the store behind a connection, and makes it if there is none. The connection belongs to the engine from here
// on, unless there is an error. Check the servers first, with Check.
func Open(ctx context.Context, nc *nats.Conn, o Options) (*Engine, error) {
	o.defaults()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		nc: nc, js: js, opts: o, ending: make(chan struct{}), over: make(chan struct{}), logs: map[engine.LogID]*log{}, later: map[engine.LogID]purging{},
	}
	var id [8]byte
	rand.Read(id[:])
	e.node = binary.BigEndian.Uint64(id[:])
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.begin(ctx); err != nil {
		e.cancel()
		e.quit()
		return nil, err
	}
	e.measureRoom(ctx)
	e.probing.Go(e.probe)
	e.probing.Go(e.watchRoom)
	return e, nil
}

// begin makes what is missing and starts to follow.
func (e *Engine) begin(ctx context.Context) error {
	if err := e.hearFull(); err != nil {
		return err
	}
	if err := e.hearTurns(); err != nil {
		return err
	}
	n, err := e.ensureStreams(ctx)
	if err != nil {
		return err
	}
	for i := range n {
		s := &shard{}
		e.shards = append(e.shards, s)
		if err := s.begin(ctx, e, i); err != nil {
			return err
		}
	}
	return e.docs.begin(ctx, e)
}

const (
	// probeEvery is how often the servers are asked whether they can do anything.
	probeEvery = 2 * time.Second
	// election is how long a leader may be missing: others are chosen within nine seconds, and what is open is used meanwhile. Who
	// says that it is not ready is sent nobody, and where one leader died all nodes would say so.
	election = 10 * time.Second
)

// probe sees whether there is somebody who leads the documents, and is followed; and somebody who leads all of JetStream, without
// whom no log is opened.
func (e *Engine) probe() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	since := time.Now()
	for {
		select {
		case <-tick.C:
		case <-e.ending:
			return
		}
		begun := time.Now()
		err := e.probeOnce(e.ctx)
		switch {
		case err == nil:
			since = begun
			e.outage.Store(nil)
		case e.ctx.Err() == nil && time.Since(since) > election:
			err = fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
			e.outage.Store(&err)
		}
	}
}

// stands is nil when servers can do what they are asked for.
func (e *Engine) probeOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	s, err := e.js.Stream(ctx, e.docs.stream)
	if err == nil {
		err = led(s.CachedInfo().Cluster)
	}
	if err != nil {
		return fmt.Errorf("its documents cannot be written: %w", err)
	}
	if _, err := e.js.AccountInfo(ctx); err != nil { // the leader of all answers
		return fmt.Errorf("nobody leads the servers: %w", err)
	}
	return nil
}

// quit ends what runs in the background.
func (e *Engine) quit() {
	e.docs.end()
	for _, s := range e.shards {
		s.end()
	}
}

func (e *Engine) shard(id engine.LogID) *shard { return e.shards[uint64(id)%uint64(len(e.shards))] }

// usable is nil while the store may be used.
func (e *Engine) usable(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.ErrClosed
	}
	return ctx.Err()
}

// Open attaches a judge to a log.
func (e *Engine) Open(ctx context.Context, id engine.LogID, judge engine.Judge) (engine.Log, error) {
	if err := e.usable(ctx); err != nil {
		return nil, err
	}
	if !e.docs.hasLog(id) {
		if err := e.docs.catchUp(ctx); err != nil { // another process may have made it just now
			return nil, err
		}
		if !e.docs.hasLog(id) {
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
		panic(fmt.Sprintf("jetstream: log %d is open already", id))
	}
	e.logs[id] = l
	e.mu.Unlock()
	begun := time.Now()
	if err := l.restore(ctx); err != nil {
		l.abandon()
		if errors.Is(err, engine.ErrDropped) {
			return nil, engine.ErrDropped
		}
		return nil, fmt.Errorf("restore log %d: %w", id, err)
	}
	l.start(begun)
	l.purgeLater() // who trimmed it last may be gone
	if !e.docs.hasLog(id) {
		l.drop() // it was deleted while we read it
	}
	return l, nil
}

// opened is a log that somebody has open, or nil.
func (e *Engine) opened(id engine.LogID) *log {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.logs[id]
}

func (e *Engine) detach(l *log) {
	l.mu.Lock()
	l.part()
	l.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.logs[l.id] == l {
		delete(e.logs, l.id)
	}
}

// behind runs something that Close waits for; false when the engine is closed.
func (e *Engine) background(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.work.Go(f)
	}
	return !e.closed
}

// Status is Ready while there is a server to talk to that has space.
func (e *Engine) Status() engine.Status {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	switch {
	case closed:
		return engine.Status{State: engine.Closed, Reason: engine.ErrClosed}
	case !e.nc.IsConnected():
		return engine.Status{State: engine.Unreachable, Reason: fmt.Errorf("%w: no connection to a NATS server", engine.ErrUnavailable)}
	}
	if why := e.outage.Load(); why != nil {
		return engine.Status{State: engine.Unreachable, Reason: *why}
	}
	if why := e.room.full.Load(); why != nil {
		return engine.Status{State: engine.Full, Reason: *why}
	}
	return engine.Status{}
}

// Close waits for what is in flight, as long as servers may take to answer, and gives up the connection.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		<-e.over
		return nil
	}
	e.closed = true
	close(e.ending)
	open := slices.Collect(maps.Values(e.logs))
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
	e.nc.Close()
	close(e.over)
	return nil
}
