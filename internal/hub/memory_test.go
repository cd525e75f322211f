package hub

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/budget"
	"weir/internal/engine/memory"
)

// stalled starts a subscription, takes one event from it and no further ones.
func stalled(t *testing.T, s *Stream, from From) (*Subscription, Event) {
	t.Helper()
	sub, err := s.Subscribe(ctx, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	e, err := sub.Next(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return sub, e
}

// Subscriptions that read large batches from the log share a memory budget. A subscription holds
// its memory until the next call of Next. A subscription that gets no memory returns an empty event
// from Next, and continues once the budget has memory for it.
func TestLargeFramesShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := budget.New(8<<20, 1<<20)
		h := open(t, memory.New(), Options{Memory: room})
		t.Cleanup(func() { h.Close() })
		s := made(t, h, nil)
		publish(t, s, at(1, "small"))
		publish(t, s, at(2, strings.Repeat("x", 400<<10)))
		publish(t, s, at(3, strings.Repeat("y", 400<<10)))
		var fed, starved []*Subscription
		for range 30 {
			sub, e := stalled(t, s, After(1))
			if len(e.Frames) > 0 {
				fed = append(fed, sub)
			} else {
				starved = append(starved, sub)
			}
			if held := room.Stats().Held; held > 8<<20 {
				t.Fatalf("%d subscriptions hold %d bytes, which exceeds the budget", len(fed), held)
			}
		}
		if len(fed) < 5 || len(starved) < 10 {
			t.Fatalf("%d subscriptions got a batch, and %d did not; want at least 5 and 10", len(fed), len(starved))
		}
		for _, sub := range fed[:5] {
			sub.freeMemory()
		}
		for _, want := range []weir.Seq{2, 3} {
			e, err := starved[0].Next(ctx, time.Second)
			if got := maps.Collect(batchesOf(e)); err != nil || got[want] == "" {
				t.Fatalf("got %d batches and %v, want batch %d", len(got), err, want)
			}
		}
		for _, sub := range append(fed, starved...) {
			sub.freeMemory()
		}
		if held := room.Stats().Held; held != 0 {
			t.Errorf("waiting subscriptions hold %d bytes, want 0", held)
		}
	})
}

// A large frame (an encoded batch) of the tail (the recent batches in memory) stays in memory for
// as long as a subscription sends it. So the frame counts against the memory budget, and
// subscriptions that stall at different batches cannot hold more memory than the budget allows.
func TestLargeFramesOfTailShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := budget.New(8<<20, 1<<20)
		h := open(t, memory.New(), Options{Memory: room, TailBytes: 1})
		t.Cleanup(func() { h.Close() })
		s := made(t, h, nil)
		fed := 0
		for seq := range weir.Seq(40) {
			sub, err := s.Subscribe(ctx, Head)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(sub.Close)
			publish(t, s, at(seq+1, strings.Repeat("x", 400<<10)))
			if e, err := sub.Next(ctx, time.Second); err != nil {
				t.Fatal(err)
			} else if len(e.Frames) > 0 {
				fed++
			}
			if held := room.Stats().Held; held > 8<<20 || held < int64(fed)*400<<10 {
				t.Fatalf("%d subscriptions that got a frame hold %d bytes, want at least 400 KiB each and at most 8 MiB together", fed, held)
			}
		}
		if fed < 5 || fed > 20 {
			t.Errorf("%d of 40 stalled subscriptions got a batch of 400 KiB from a budget of 8 MiB, want 5 to 20", fed)
		}
	})
}

// A frame of the tail counts once against the budget, however many subscriptions send it. It counts
// until the last of them has finished.
func TestSharedFrameCountsOnce(t *testing.T) {
	room := budget.New(8<<20, 1<<20)
	h := open(t, memory.New(), Options{Memory: room})
	defer h.Close()
	s := made(t, h, nil)
	var subs []*Subscription
	for range 100 {
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	publish(t, s, at(1, strings.Repeat("x", 400<<10)))
	var all sync.WaitGroup
	for _, sub := range subs {
		all.Go(func() {
			if e, err := sub.Next(ctx, time.Minute); err != nil || len(e.Frames) != 1 {
				t.Errorf("a subscription got %d frames and %v, want one frame", len(e.Frames), err)
			}
		})
	}
	all.Wait()
	one := room.Stats().Held
	if one < 400<<10 || one > 600<<10 {
		t.Fatalf("100 subscriptions that send the same 400 KiB hold %d bytes, want 400 to 600 KiB", one)
	}
	for i, sub := range subs {
		sub.Close()
		want := one
		if i == len(subs)-1 {
			want = 0
		}
		if held := room.Stats().Held; held != want {
			t.Fatalf("after %d of 100 subscriptions closed, %d bytes are held, want %d", i+1, held, want)
		}
	}
}

// While another borrower waits for memory, the budget ends all stalled subscriptions that send the
// same frame at the same time. One of them, the payer, borrowed the memory of the frame. If the
// budget ended only the payer, it would measure the speed of the next payer for two seconds, then
// that of the one after it, and the frame would stay in memory for minutes.
func TestStalledFrameIsFreedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := budget.New(8<<20, 1<<20)
		h := open(t, memory.New(), Options{Memory: room})
		defer h.Close()
		s := made(t, h, nil)
		const n = 50
		var open sync.WaitGroup
		var subs []*Subscription
		for range n {
			sub, err := s.Subscribe(ctx, Head)
			if err != nil {
				t.Fatal(err)
			}
			open.Add(1)
			sub.ChargeTo(budget.Holder{Project: "p", Key: "slow"}, func() {
				go func() { sub.Close(); open.Done() }()
			}).Watch(true)
			subs = append(subs, sub)
		}
		publish(t, s, at(1, strings.Repeat("x", 400<<10)))
		for _, sub := range subs {
			if e, err := sub.Next(ctx, time.Minute); err != nil || len(e.Frames) != 1 {
				t.Fatalf("a subscription got %d frames and %v, want one frame", len(e.Frames), err)
			}
		}
		wait, cancel := context.WithCancel(ctx)
		var waiting sync.WaitGroup
		for i := range 20 { // together these loans need more than the budget has, and the budget cannot end them
			waiting.Go(func() {
				l := room.Open(budget.Holder{Project: strconv.Itoa(i)}, 1<<20, nil)
				defer l.End()
				_ = l.Grow(wait, 1<<20)
				<-wait.Done()
			})
		}
		begun := time.Now()
		open.Wait()
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("ending %d stalled subscriptions of one frame took %v, want at most 5 s", n, took)
		}
		cancel()
		waiting.Wait()
		if held := room.Stats().Held; held != 0 {
			t.Errorf("at the end %d bytes are held, want 0", held)
		}
	})
}

// A subscription that waits for the next batch refers to no frame, whether it got the last one from
// the tail or from the log. Otherwise the frame would stay in memory after the tail has dropped it.
func TestWaitingSubscriptionKeepsNoFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memory.New(), Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, strings.Repeat("x", 400<<10)))
		sub, e := stalled(t, s, Oldest)
		if len(e.Frames) != 1 || !e.Sole {
			t.Fatalf("got %d frames from the log, sole %v; want one frame and true", len(e.Frames), e.Sole)
		}
		for i, text := range []string{"small", strings.Repeat("y", 400<<10), "small"} {
			publish(t, s, at(weir.Seq(i+2), text))
			e, err := sub.Next(ctx, time.Second)
			if err != nil || len(e.Frames) != 1 || e.Sole {
				t.Fatalf("got %d frames from the tail, sole %v, %v; want one frame and false", len(e.Frames), e.Sole, err)
			}
			buffer := sub.buffer
			if e, err = sub.Next(ctx, time.Second); err != nil || len(e.Frames) > 0 {
				t.Fatalf("got %d frames and %v, want none", len(e.Frames), err)
			}
			if sub.buffer != nil {
				t.Error("the waiting subscription keeps its buffers")
			}
			for _, b := range buffer.frames[:cap(buffer.frames)] {
				if b != nil {
					t.Errorf("the waiting subscription keeps a frame of %d bytes", len(b))
				}
			}
		}
	})
}

// SizeOf returns the payload size of a batch.
func TestSizeOf(t *testing.T) {
	h := open(t, memory.New(), Options{})
	defer h.Close()
	s := made(t, h, nil)
	publish(t, s, at(1, "one"))
	publish(t, s, at(3, "three"))
	for seq, want := range []int{0, 3, 0, 5, 0} {
		if got := s.SizeOf(ctx, weir.Seq(seq)); got != want {
			t.Errorf("batch %d is %d bytes, want %d", seq, got, want)
		}
	}
}
