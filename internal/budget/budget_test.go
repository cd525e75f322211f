package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line records in which order requests are served.
type line struct {
	b      *Budget
	mu     sync.Mutex
	served []string
}

func (l *line) take(name, who string, bytes int64) {
	go func() {
		if _, err := l.b.Take(context.Background(), who, bytes); err == nil {
			l.mu.Lock()
			l.served = append(l.served, name)
			l.mu.Unlock()
		}
	}()
	synctest.Wait()
}

func (l *line) want(t *testing.T, names ...string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.served) != len(names) {
		t.Fatalf("served %v, want %v", l.served, names)
	}
	for i, n := range names {
		if l.served[i] != n {
			t.Fatalf("served %v, want %v", l.served, names)
		}
	}
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{b: New(100)}
		l.take("a", "x", 50)
		l.take("b", "y", 30)
		l.take("large", "z", 40)
		l.take("small", "w", 20) // would fit, but waits behind the large one
		l.want(t, "a", "b")
		l.b.Give("y", 30)
		l.want(t, "a", "b", "large")
		l.b.Give("z", 40)
		l.want(t, "a", "b", "large", "small")
	})
}

// One holder gets at most half, and its waiting requests do not block other holders.
func TestOneHolderGetsAtMostHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{b: New(100)}
		l.take("a", "greedy", 50)
		l.take("b", "greedy", 1)
		l.take("c", "other", 50)
		l.want(t, "a", "c")
		l.b.Give("other", 50)
		l.want(t, "a", "c")
		l.b.Give("greedy", 50)
		l.want(t, "a", "c", "b")
	})
}

func TestRequestAboveHalfIsReduced(t *testing.T) {
	b := New(100)
	n, err := b.Take(context.Background(), "x", 1000)
	if n != 50 || err != nil {
		t.Fatalf("took %d, %v; want 50", n, err)
	}
	b.Give("x", n)
	if b.free != 100 || len(b.held) != 0 {
		t.Errorf("%d bytes are free and %v held; want 100 and none", b.free, b.held)
	}
}

// A request whose context ends leaves the queue and unblocks the requests behind it.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{b: New(100)}
		l.take("a", "x", 50)
		l.take("b", "y", 20)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		gone := make(chan error)
		go func() {
			_, err := l.b.Take(ctx, "z", 50)
			gone <- err
		}()
		synctest.Wait()
		l.take("c", "w", 30)
		l.want(t, "a", "b")
		if err := <-gone; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		l.want(t, "a", "b", "c")
	})
}

// Under concurrent takes and cancellations the budget is never exceeded, and in the end all bytes
// are free again.
func TestConcurrentUse(t *testing.T) {
	const total = 1000
	b := New(total)
	var out atomic.Int64
	var all sync.WaitGroup
	for who := range 8 {
		r := rand.New(rand.NewPCG(uint64(who), 1))
		all.Go(func() {
			name := string(rune('a' + who/2))
			for range 2000 {
				ctx, cancel := context.WithCancel(context.Background())
				if r.IntN(4) == 0 {
					go cancel()
				}
				n, err := b.Take(ctx, name, 1+r.Int64N(total))
				if err == nil {
					if now := out.Add(n); now > total {
						t.Errorf("%d of %d bytes are reserved", now, total)
					}
					out.Add(-n)
					b.Give(name, n)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if b.free != total || len(b.held) != 0 || len(b.queue) != 0 {
		t.Errorf("%d bytes are free, %v held, %d requests wait; want all free", b.free, b.held, len(b.queue))
	}
}
