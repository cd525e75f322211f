package hub

import (
	"maps"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/engine/memory"
)

// A subscription that catches up gets a short run first and then long ones, as long as no more than
// mostLong subscriptions have one at the same time. The others get short runs. Each gets every batch
// once and in order, and has no long run when it waits or is closed.
func TestLongRuns(t *testing.T) {
	h := open(t, memory.New(), Options{TailBytes: 1})
	defer h.Close()
	s := made(t, h, nil)
	const last = 200
	for seq := range weir.Seq(last) {
		publish(t, s, at(seq+1, strings.Repeat("x", 1<<10)))
	}
	subs, next := make([]*Subscription, mostLong+3), make([]weir.Seq, mostLong+3)
	for i := range subs {
		sub, err := s.Subscribe(ctx, Oldest)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		subs[i], next[i] = sub, 1
	}
	read := func(i int) (size int) {
		t.Helper()
		e, err := subs[i].Next(ctx, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		got := maps.Collect(batchesOf(e))
		for range got {
			if got[next[i]] == "" {
				t.Fatalf("subscription %d did not get batch %d next", i, next[i])
			}
			next[i]++
		}
		for _, f := range e.Frames {
			size += len(f)
		}
		return size
	}
	for i := range subs {
		if n := read(i); n < run || n > 2*run {
			t.Fatalf("the first run of subscription %d has %d bytes", i, n)
		}
	}
	for i := range subs {
		if n := read(i); i < mostLong && n < longRun || i >= mostLong && n > 2*run {
			t.Fatalf("the second run of subscription %d has %d bytes", i, n)
		}
	}
	if n := h.long.Load(); n != mostLong {
		t.Errorf("%d subscriptions have a long run, want %d", n, mostLong)
	}
	subs[0].freeMemory() // as if it waited
	if n := read(mostLong); n < longRun {
		t.Errorf("a subscription got a run of %d bytes when another had given up its long run", n)
	}
	for i := range subs {
		for next[i] <= last {
			read(i)
		}
		subs[i].freeMemory()
	}
	if n := h.long.Load(); n != 0 {
		t.Errorf("%d subscriptions have a long run, want none", n)
	}
}
