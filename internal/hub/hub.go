// Package hub connects the rules of streams (package stream) with storage (package engine). It
// keeps the catalog of streams and one feed for each stream in use. A feed decides on publishes,
// appends them to the log, applies the durable entries, and wakes the subscribers.
//
// The hub knows streams and project ids, but no API keys: access is checked by its callers.
package hub

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/budget"
	"weir/internal/engine"
)

// Options are the settings of a hub. Zero values select the defaults given here.
type Options struct {
	GapGrace          time.Duration    // time for which a gap (missing sequences below the cursor) can be filled (D4); default 2 s
	TrimAfter         time.Duration    // time after which evicted batches are removed from the log, if few are evicted; default 1 min
	StreamsPerProject int              // maximum number of streams in a project (D24); default 10,000
	TailBytes         int              // bytes of recent frames (encoded batches) kept in memory per stream with subscribers; default 1 MiB
	TailTotal         int64            // bytes of recent frames kept in memory for all streams together; default 256 MiB
	StateBytes        int64            // bytes of memory for the states of streams whose log is closed; default 256 MiB
	IndexBytes        int64            // bytes of memory for the index of all batches and keys, shared by the projects (D12); default: unlimited
	Memory            *budget.Budget   // budget for frames above 32 KiB while subscriptions send them; nil: unlimited
	Now               func() time.Time // default time.Now
	Logger            *slog.Logger     // default: no logging

	// Frame appends the encoding of a batch to b, as subscribers of a stream with this mode receive
	// it. The hub encodes a recent batch once and shares the result between all subscribers.
	// Required.
	Frame func(b []byte, mode weir.Mode, batch *weir.Batch) []byte
}

func (o *Options) defaults() {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.StreamsPerProject, 10_000)
	set(&o.TailBytes, 1<<20)
	if o.TailTotal == 0 {
		o.TailTotal = 256 << 20
	}
	if o.StateBytes == 0 {
		o.StateBytes = 256 << 20
	}
	if o.IndexBytes == 0 {
		o.IndexBytes = math.MaxInt64
	}
	if o.GapGrace == 0 {
		o.GapGrace = 2 * time.Second
	}
	if o.TrimAfter == 0 {
		o.TrimAfter = trimAfter
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Hub serves the streams of one engine. Its methods are safe for concurrent use.
type Hub struct {
	engine  engine.Engine
	flusher engine.Flusher // the same as engine; nil if the engine is no Flusher
	shared  bool           // other nodes use the store too
	opts    Options
	catalog catalog
	sweeper sweeper
	waker   waker
	folded  folded
	lives   lives

	attributes sync.Map // maps a *Stream to its attributes; only for streams that have some
	room       room
	first      atomic.Pointer[func() bool] // set by Lead; reports whether this node does the work that only one node should do

	counts    counters
	tail      atomic.Int64 // bytes of recent frames in memory, for all streams together (tail.go)
	long      atomic.Int64 // number of subscriptions that have a long run (subscription.go)
	stopping  atomic.Bool
	suspended atomic.Bool   // set by Suspend
	stalled   atomic.Bool   // the store takes no writes, so gaps stay open
	refreshes atomic.Uint32 // number of calls of the method refresh
	closing   chan struct{}
	closeOnce sync.Once
	work      sync.WaitGroup
}

// IsShared reports whether other nodes use the store too. Then most methods may have to wait for
// them.
func IsShared(h *Hub) bool { return h.shared }

// Open loads the catalog of streams and starts a hub. The caller must close the hub before it
// closes the engine. Open fails if a stream document cannot be read.
func Open(ctx context.Context, e engine.Engine, o Options) (*Hub, error) {
	o.defaults()
	h := &Hub{engine: e, shared: e.Shared(), opts: o, closing: make(chan struct{})}
	h.flusher, _ = e.(engine.Flusher)
	h.catalog.init(h)
	h.waker.init()
	h.folded.init(o.StateBytes)
	if err := h.load(ctx); err != nil {
		return nil, err
	}
	h.sweeper.init(h)
	h.work.Go(h.sweeper.run)
	h.work.Go(h.waker.run)
	return h, nil
}

// StopSubscriptions ends every subscription with ErrStopping. It wakes the subscriptions that wait
// for a batch, so that they end too. A subscription that starts later ends at its first call of
// Next. Everything else keeps working.
func (h *Hub) StopSubscriptions() {
	h.stopping.Store(true)
	h.wakeAll()
}

// wakeAll wakes all subscriptions that wait for a batch.
func (h *Hub) wakeAll() {
	for _, s := range h.catalog.open() {
		f := s.openFeed()
		if f != nil {
			h.waker.wake(f)
		}
	}
}

// Suspend(true) ends every subscription with ErrStopping, also those that start later, until
// Suspend(false) is called. The caller suspends the hub while this node cannot know whether the
// streams and the keys still exist. Clients reconnect and resume on another node.
func (h *Hub) Suspend(on bool) {
	if h.suspended.Swap(on) != on && on {
		h.wakeAll()
	}
}

func (h *Hub) isStopping() bool { return h.stopping.Load() }

// endsSubscriptions reports whether open subscriptions must end.
func (h *Hub) endsSubscriptions() bool { return h.isStopping() || h.suspended.Load() }

// Close ends every subscription with ErrStopping, waits for appends in flight and closes all logs.
// It does not close the engine.
func (h *Hub) Close() error {
	h.StopSubscriptions()
	h.closeOnce.Do(func() { close(h.closing) })
	h.waker.stop()
	h.work.Wait()
	var all sync.WaitGroup // close the logs concurrently, because each may wait for servers that do not answer
	for _, s := range h.catalog.open() {
		all.Go(func() { h.closeFeed(s, true) })
	}
	all.Wait()
	return nil
}

func (h *Hub) now() weir.Time { return weir.TimeOf(h.opts.Now()) }

// errStopped is the error of calls after Close.
var errStopped = weir.Errorf(weir.StorageUnavailable, "the server is shutting down")

// notFound returns the error about a stream that does not exist. It does without package fmt,
// because every creation of a stream begins with lookups that find nothing.
func notFound(id weir.StreamID) *weir.Error {
	return &weir.Error{Code: weir.StreamNotFound, Message: "stream " + string(id) + " does not exist"}
}

// isNotFound reports whether err says that a stream does not exist.
func isNotFound(err error) bool {
	var known *weir.Error
	return errors.As(err, &known) && known.Code == weir.StreamNotFound
}

// clientError translates an error of the engine into one that a client may see. It returns other
// errors unchanged.
func clientError(id weir.StreamID, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, engine.ErrDropped):
		return notFound(id)
	case errors.Is(err, engine.ErrFull):
		return weir.Errorf(weir.StorageUnavailable, "the store is full: it accepts no writes until space is freed")
	case errors.Is(err, engine.ErrReadOnly):
		return weir.Errorf(weir.StorageUnavailable, "the store accepts no writes because an earlier write failed")
	case errors.Is(err, engine.ErrClock):
		return weir.Errorf(weir.StorageUnavailable, "the clock of this node is wrong, so it accepts no writes: nothing was stored")
	case errors.Is(err, engine.ErrOlder):
		return weir.Errorf(weir.StorageUnavailable, "another node of this cluster runs an older version that cannot read this: nothing was stored")
	case errors.Is(err, engine.ErrTooNew): // before ErrBehind, which wraps it
		return weir.Errorf(weir.StorageUnavailable, "a newer version has written to this stream, and this node must be upgraded to read it")
	case errors.Is(err, engine.ErrUnavailable):
		return errNoAnswer
	case errors.Is(err, engine.ErrBehind):
		return weir.Errorf(weir.StorageUnavailable, "this node fell behind the other nodes: retry the request")
	case errors.Is(err, engine.ErrClosed):
		return errStopped
	}
	return err
}

// errNoAnswer is the error of a call that has changed nothing.
var errNoAnswer = weir.Errorf(weir.StorageUnavailable, "the store did not answer in time: retry the request")

// changeError is clientError for a call that may have changed something although it failed. The
// parameter err may also be a result of clientError.
func changeError(id weir.StreamID, err error) error {
	known := clientError(id, err)
	if known == errNoAnswer {
		return weir.Errorf(weir.StorageUnavailable, "the store did not answer in time, and the request may have taken effect: retry it")
	}
	return known
}
