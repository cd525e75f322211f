package hub

import (
	"errors"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/engine/memory"
)

// A parked subscription, which waits without a goroutine, gets small batches of the tail (the
// recent batches in memory), gaps and the end of the stream. It has to be unparked for large
// batches, and for batches that it must read from the log.
func TestParked(t *testing.T) {
	h := open(t, memory.New(), Options{TailBytes: 100 << 10})
	defer h.Close()
	s := made(t, h, nil)
	publish(t, s, at(1, "old"))
	sub, err := s.Subscribe(ctx, Oldest)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	next := func(want weir.Seq) {
		t.Helper()
		e, err := sub.Next(ctx, time.Minute)
		for seq := range batchesOf(e) {
			if seq == want {
				return
			}
		}
		t.Errorf("Next returned %+v, %v; want batch %d", e, err, want)
	}
	if sub.IsIdle() {
		t.Error("a subscription that has something to send is idle")
	}
	next(1)
	if !sub.IsIdle() {
		t.Fatal("a subscription that has nothing to send is not idle")
	}

	woken := make(sleeper, 1)
	sub.Park(woken)
	if e, err := sub.Poll(); err != nil || len(e.Frames) > 0 {
		t.Errorf("Poll returned %+v, %v; want nothing", e, err)
	}
	publish(t, s, at(2, "small"))
	<-woken
	e, err := sub.Poll()
	for seq := range batchesOf(e) {
		if seq != 2 {
			t.Errorf("Poll returned batch %d, want 2", seq)
		}
	}
	if err != nil || len(e.Frames) != 1 {
		t.Errorf("Poll returned %d frames, %v; want 1", len(e.Frames), err)
	}
	before := h.Stats().Delivered
	if sub.Poll(); h.Stats().Delivered != before+1 {
		t.Error("the batch was not counted as delivered")
	}

	for i, size := range []int{64 << 10, 30 << 10} { // first large batches, then smaller ones, so many that the tail drops some of them
		seq := weir.Seq(3 + 10*i)
		for j := range weir.Seq(10) {
			publish(t, s, at(seq+j, strings.Repeat("x", size)))
		}
		if _, err := sub.Poll(); !errors.Is(err, ErrBusy) {
			t.Errorf("Poll returned %v, want ErrBusy", err)
		}
		sub.Unpark()
		for !sub.IsIdle() {
			next(seq)
			seq, _ = sub.Position()
			seq++
		}
		sub.Park(woken)
	}

	if err := s.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; _, err = sub.Poll() {
		<-woken
	}
	if !errors.Is(err, ErrDeleted) {
		t.Errorf("after the stream was deleted, Poll returned %v", err)
	}
}
