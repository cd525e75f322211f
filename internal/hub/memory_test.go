package hub

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/budget"
	"weir/internal/engine/memory"
)

// Subscriptions that read large batches from the log share a memory budget. A subscription holds
// its memory until the next call to Next. One that gets none returns an empty event and continues
// once there is some.
func TestLargeFramesShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := budget.New(900 << 10) // one project may use half: for two frames of 100 KiB and the payloads they are made from
		h := open(t, memory.New(), Options{Memory: room})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "small"))
		publish(t, s, at(2, strings.Repeat("x", 100<<10)))
		publish(t, s, at(3, strings.Repeat("y", 100<<10)))
		subscribe := func() *Subscription {
			sub, err := s.Subscribe(ctx, Oldest)
			if err != nil {
				t.Fatal(err)
			}
			return sub
		}
		next := func(sub *Subscription) (seqs []int) {
			t.Helper()
			e, err := sub.Next(ctx, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for seq := range batchesOf(e) {
				seqs = append(seqs, int(seq))
			}
			return seqs
		}
		a, b, c := subscribe(), subscribe(), subscribe()
		defer b.Close()
		defer c.Close()
		for _, sub := range []*Subscription{a, b} {
			if got := next(sub); len(got) == 0 || got[0] != 1 {
				t.Fatalf("got %v, want batch 1 first", got)
			}
		}
		if got := next(c); got != nil {
			t.Fatalf("got %v without memory, want nothing", got)
		}
		a.Close()
		seen := 0
		for seen < 3 {
			got := next(c)
			for _, seq := range got {
				if seen++; seq != seen {
					t.Fatalf("got %v after %d", got, seen-1)
				}
			}
		}
		if got := next(c); got != nil {
			t.Fatalf("got %v after the last batch", got)
		}
		if c.held != 0 {
			t.Errorf("a waiting subscription holds %d bytes, want 0", c.held)
		}
	})
}

// SizeOf knows the size of a batch without reading it.
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
