package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

// stopwatch is an engine that measures how long each call of the method Commit takes. Commit
// belongs to the judge of a log, which decides which entries the log stores. The journal has a
// single writer, which calls Commit, so every publish to any stream waits for the call.
type stopwatch struct {
	engine.Engine
	mu    sync.Mutex
	taken []time.Duration
	clean []time.Duration // only calls during which the operating system did not give the core to another thread
}

// commits are figures about the calls of Commit since the last reset, in milliseconds.
type commits struct {
	longest float64 // the longest call
	clean   float64 // the longest call that the operating system did not interrupt
	rare    float64 // the time that one call in a thousand exceeds
}

func (s *stopwatch) reset() (c commits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.taken)
	if n := len(s.taken); n > 0 {
		c.longest, c.rare = ms(s.taken[n-1]), ms(s.taken[n*999/1000])
	}
	if len(s.clean) > 0 {
		c.clean = ms(slices.Max(s.clean))
	}
	s.taken, s.clean = s.taken[:0], s.clean[:0]
	return c
}

// interruptions returns how often the operating system took the core from this thread although the
// thread was not waiting.
func interruptions() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return u.Nivcsw
}

func (s *stopwatch) Open(ctx context.Context, id engine.LogID, judge engine.Judge) (engine.Log, error) {
	return s.Engine.Open(ctx, id, timed{judge, s})
}

type timed struct {
	engine.Judge
	on *stopwatch
}

// KeysSince implements engine.Forgetful, as the hub's judges do.
func (t timed) KeysSince() weir.Time { return t.Judge.(engine.Forgetful).KeysSince() }

func (t timed) Commit(n int) {
	runtime.LockOSThread() // interruptions are counted per thread
	before, start := interruptions(), time.Now()
	t.Judge.Commit(n)
	took, after := time.Since(start), interruptions()
	runtime.UnlockOSThread()
	t.on.mu.Lock()
	defer t.on.mu.Unlock()
	if t.on.taken = append(t.on.taken, took); before == after {
		t.on.clean = append(t.on.clean, took)
	}
}

// inside is a hub on an engine inside this process, without HTTP.
type inside struct {
	*hub.Hub
	engine engine.Engine
	stop   func()       // stops the NATS server that the engine uses; nil for a journal
	watch  *stopwatch   // nil unless the engine is a journal
	ahead  atomic.Int64 // how far the hub's clock is ahead of the real one
}

func openInside(dir string) (*inside, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	j, err := journal.Open(disk.OS(dir), journal.Options{})
	if err != nil {
		return nil, err
	}
	in := &inside{engine: j, watch: &stopwatch{Engine: j}}
	return in, in.open(in.watch)
}

func (in *inside) open(e engine.Engine) (err error) {
	in.Hub, err = hub.Open(context.Background(), e, hub.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(in.ahead.Load())) },
		Frame: func(b []byte, _ weir.Mode, batch *weir.Batch) []byte {
			return append(strconv.AppendUint(b, uint64(batch.Seq), 10), batch.Payload...)
		},
	})
	return err
}

func (in *inside) close() {
	in.Hub.Close()
	in.engine.Close()
	if in.stop != nil {
		in.stop()
	}
}

func (in *inside) stream() (*hub.Stream, error) {
	o, err := in.Create(context.Background(), hub.Spec{
		Project: "bench", Name: "bench", RetentionSeconds: 3 * 86400, MaxBytes: 4 << 30, Mode: weir.Raw,
	})
	if err != nil {
		return nil, err
	}
	return in.Stream(o.ID)
}

// store publishes a batch. The hub chooses its sequence.
func store(s *hub.Stream, key string, payload []byte) error {
	_, err := s.Publish(context.Background(), &hub.Publish{Key: key, Batch: weir.Batch{Events: 1, Payload: slices.Clone(payload)}})
	return err
}

const (
	wakings     = 20 // batches per second to the stream with the subscribers
	wakingSpan  = 4 * time.Second
	wakingTurns = 3
)

// waking measures how much the publishers of one stream slow down while the subscribers of another
// stream are woken. It measures this twice: inside one process, where it also measures the longest
// call of Commit, and over HTTP/2.
func waking(dir string) ([]figure, error) {
	var figures []figure
	for _, n := range []int{1000, 10_000, 30_000} {
		f, err := wakingInside(filepath.Join(dir, "waking"+strconv.Itoa(n)), n)
		if err != nil {
			return figures, err
		}
		figures = append(figures, f...)
	}
	for _, n := range []int{1000, 30_000} {
		f, err := onFreshServer(filepath.Join(dir, "crowd"+strconv.Itoa(n)), wakingOverHTTP(n))
		if err != nil {
			return figures, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

func wakingInside(dir string, n int) ([]figure, error) {
	in, err := openInside(dir)
	if err != nil {
		return nil, err
	}
	defer in.close()
	crowded, err := in.stream()
	if err != nil {
		return nil, err
	}
	quiet, err := in.stream()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	var got atomic.Int64
	for range n {
		sub, err := crowded.Subscribe(ctx, hub.Head)
		if err != nil {
			return nil, err
		}
		readers.Go(func() {
			defer sub.Close()
			for {
				e, err := sub.Next(ctx, time.Minute)
				if err != nil {
					return
				}
				got.Add(int64(len(e.Frames)))
			}
		})
	}
	payload := make([]byte, 100)
	publishing := []func() error{func() error { return store(quiet, "", payload) }}
	none := func() time.Duration { return 0 }
	var alone, beside, tails, longest, clean, rare, undisturbed []float64
	share := 1.0
	in.watch.reset()
	for range wakingTurns {
		a, err := work(publishing, len(payload), wakingSpan, none)
		if err != nil {
			return nil, err
		}
		undisturbed = append(undisturbed, in.watch.reset().longest)
		got.Store(0)
		over, done := make(chan struct{}), make(chan int64)
		go func() { done <- wakeUp(crowded, payload, over) }()
		b, err := work(publishing, len(payload), wakingSpan, none)
		close(over)
		sent := <-done
		if err != nil {
			return nil, err
		}
		for deadline := time.Now().Add(10 * time.Second); got.Load() < sent*int64(n) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		c := in.watch.reset()
		longest, clean, rare = append(longest, c.longest), append(clean, c.clean), append(rare, c.rare)
		share = min(share, float64(got.Load())/float64(sent*int64(n)))
		alone, beside, tails = append(alone, a.P50), append(beside, b.P50), append(tails, b.P99)
	}
	name := fmt.Sprintf("%d subscribers woken 20 times/s, no HTTP", n)
	return []figure{
		{name + ": publish p50 / p50 without wake-ups", middle(beside) / middle(alone), ""},
		{"  publish p50 without wake-ups", middle(alone), "ms"},
		{"  publish p50 with wake-ups", middle(beside), "ms"},
		{"  publish p99 with wake-ups", middle(tails), "ms"},
		{"  longest Commit, median of three turns", middle(longest), "ms"},
		{"  longest Commit not interrupted by the system", middle(clean), "ms"},
		{"  longest Commit without wake-ups", middle(undisturbed), "ms"},
		{"  Commit p99.9", middle(rare), "ms"},
		{"  share of expected deliveries", share, ""},
	}, nil
}

// wakeUp publishes until the channel over is closed, and returns how many batches it published.
func wakeUp(s *hub.Stream, payload []byte, over <-chan struct{}) (sent int64) {
	tick := time.NewTicker(time.Second / wakings)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return sent
		case <-tick.C:
			if store(s, "", payload) == nil {
				sent++
			}
		}
	}
}

// fillKeyed publishes n batches, each with an idempotency key.
func fillKeyed(s *hub.Stream, n int, payload []byte) error {
	var next atomic.Int64
	var failure atomic.Pointer[error]
	var all sync.WaitGroup
	for range 512 {
		all.Go(func() {
			for failure.Load() == nil {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				if err := store(s, "key-"+strconv.FormatInt(i, 10), payload); err != nil {
					failure.Store(&err)
				}
			}
		})
	}
	all.Wait()
	if p := failure.Load(); p != nil {
		return *p
	}
	return nil
}
