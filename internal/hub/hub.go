// Package hub is where rules meet storage: one feed for every stream in use, which decides, appends, applies and wakes.
// It knows streams and the ids of projects, and no key.
package hub

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/budget"
	"weir/internal/engine"
)

// Options are what a hub needs beside an engine.
type Options struct {
	GapGrace          time.Duration  // D4; 2 s
	StreamsPerProject int            // D24; 10,000
	TailBytes         int            // of recent frames that a stream with subscribers keeps; 1 MiB
	TailTotal         int64          // of recent frames that all streams together keep; 256 MiB
	Memory            *budget.Budget // of frames above 64 KiB that are read from the log; nil: without bound
	Now               func() time.Time
	Logger            *slog.Logger

	// Frame appends a batch to b as subscribers of such a stream get it. It is called once a batch for as long as the
	// batch is recent, and the result is shared.
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
	if o.GapGrace == 0 {
		o.GapGrace = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Hub serves the streams of one engine.
type Hub struct {
	engine  engine.Engine
	shared  engine.Shared // the same, when other nodes use it as well
	opts    Options
	catalog catalog
	sweeper sweeper
	first   atomic.Pointer[func() bool] // tells whether this node does what only one should do

	counts    counters
	tail      atomic.Int64 // bytes of all tails
	stopping  atomic.Bool
	closing   chan struct{}
	closeOnce sync.Once
	work      sync.WaitGroup
}

// Open starts a hub on an engine.
func Open(ctx context.Context, e engine.Engine, o Options) (*Hub, error) {
	o.defaults()
	h := &Hub{engine: e, opts: o, closing: make(chan struct{})}
	h.catalog.init()
	h.share()
	if err := h.load(ctx); err != nil {
		return nil, err
	}
	h.sweeper.init(h)
	h.work.Go(h.sweeper.run)
	return h, nil
}

// StopSubscriptions ends every subscription with ErrStopping, also those that begin after it; everything else goes on.
// Whoever waits is woken and sees the mark, so that no subscription has to wait for one thing more.
func (h *Hub) StopSubscriptions() {
	h.stopping.Store(true)
	for _, s := range h.catalog.open() {
		s.mu.Lock()
		f := s.feed
		s.mu.Unlock()
		if f != nil {
			f.mu.Lock()
			f.wake()
			f.mu.Unlock()
		}
	}
}

func (h *Hub) isStopping() bool { return h.stopping.Load() }

// Close ends every subscription with ErrStopping, waits for what is in flight, and leaves the engine to its owner.
func (h *Hub) Close() error {
	h.StopSubscriptions()
	h.closeOnce.Do(func() { close(h.closing) })
	h.work.Wait()
	var others sync.WaitGroup
	for _, s := range h.catalog.open() {
		if h.shared == nil {
			h.fold(s, true)
		} else {
			others.Go(func() { h.fold(s, true) }) // each may wait for servers that do not answer
		}
	}
	others.Wait()
	return nil
}

func (h *Hub) now() weir.Time { return weir.TimeOf(h.opts.Now()) }

// errStopped answers what comes after Close.
var errStopped = weir.Errorf(weir.StorageUnavailable, "the server is shutting down")

func notFound(id weir.StreamID) *weir.Error {
	return weir.Errorf(weir.StreamNotFound, "there is no stream %s", id)
}

// outcome turns an engine's error into what a caller may know. What is not known here is returned as it is.
func outcome(id weir.StreamID, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, engine.ErrDropped):
		return notFound(id)
	case errors.Is(err, engine.ErrFull):
		return weir.Errorf(weir.StorageUnavailable, "the store has no space left: nothing can be written until there is")
	case errors.Is(err, engine.ErrReadOnly):
		return weir.Errorf(weir.StorageUnavailable, "the store takes no writes since one failed")
	case errors.Is(err, engine.ErrUnavailable):
		return weir.Errorf(weir.StorageUnavailable, "the store does not answer: whether this was done is not known, and sending it again settles it")
	case errors.Is(err, engine.ErrBehind):
		return weir.Errorf(weir.StorageUnavailable, "other nodes went on while this one could not follow: send it again")
	case errors.Is(err, engine.ErrClosed):
		return errStopped
	}
	return err
}
