package hub

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// Copy keeps up to copiesInFlight batches in flight, so that they share syncs of the disk. The
// batches are stored in order.
func TestCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &heldBack{Engine: memory.New()}
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		const n = 3*copiesInFlight + 10
		batches := make([]weir.Batch, n)
		for i := range batches {
			batches[i] = weir.Batch{Seq: weir.Seq(i + 1), Events: 1, Payload: fmt.Append(nil, i)}
		}
		done := make(chan error, 1)
		go func() { done <- Copy(ctx, s, batches) }()
		for left := n; left > 0; {
			synctest.Wait()
			got := e.release()
			if got != min(left, copiesInFlight) {
				t.Fatalf("%d batches are in flight while %d are not stored yet", got, left)
			}
			left -= got
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		next := weir.Seq(1)
		got, err := s.Read(ctx, 1, 1<<20, func(int) error { return nil }, func(b *weir.Batch) {
			if b.Seq != next || string(b.Payload) != fmt.Sprint(next-1) {
				t.Errorf("batch %d is %q", b.Seq, b.Payload)
			}
			next++
		})
		if err != nil || next != n+1 || got.Tail != n+1 {
			t.Errorf("read up to %d: %+v, %v; want %d", next, got, err, n+1)
		}
	})
}

// All copied batches can be read when Copy returns, although the time for filling the gaps between
// them has not passed. The position that Read returns lies directly above a batch, even if a gap
// follows. Otherwise a reader of a copy that ends before the gap would miss the next batch, which
// gets a sequence inside the gap.
func TestCopyWithGaps(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{GapGrace: time.Hour})
		defer h.Close()
		s := made(t, h, nil)
		var batches []weir.Batch
		for _, seq := range []weir.Seq{3, 4, 9, 20} {
			batches = append(batches, weir.Batch{Seq: seq, Events: 1, Payload: []byte("x")})
		}
		if err := Copy(ctx, s, batches); err != nil {
			t.Fatal(err)
		}
		if _, got, err := s.Bounds(ctx); err != nil || got.Tail != 21 {
			t.Errorf("the end is %d, %v; want 21", got.Tail, err)
		}
		for limit, want := range map[int]weir.Seq{1: 4, 2: 5, 3: 10, 4: 21} {
			got, err := s.Read(ctx, 1, limit, func(int) error { return nil }, func(*weir.Batch) {})
			if err != nil || got.Next != want {
				t.Errorf("after %d batches: %+v, %v; want the position %d", limit, got, err, want)
			}
		}
	})
}

// Copy fails with the error of the first batch that cannot be stored. After that error it proposes
// no further batches.
func TestFailedCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &heldBack{Engine: memory.New()}
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		batches := make([]weir.Batch, 3*copiesInFlight)
		for i := range batches {
			batches[i] = weir.Batch{Seq: 5000 + weir.Seq(i), Events: 1, Payload: []byte("too far ahead")}
		}
		done := make(chan error, 1)
		go func() { done <- Copy(ctx, s, batches) }()
		synctest.Wait()
		if got := e.release(); got != copiesInFlight {
			t.Errorf("%d batches were in flight, want %d", got, copiesInFlight)
		}
		synctest.Wait()
		e.release()
		if err := <-done; code(err) != weir.SequenceTooFarAhead {
			t.Errorf("Copy returned %v, want %s", err, weir.SequenceTooFarAhead)
		}
		if c, err := s.Cursor(ctx); err != nil || c.Cursor != 0 {
			t.Errorf("the cursor is %d, %v; want 0", c.Cursor, err)
		}
	})
}
