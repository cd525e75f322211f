package hub

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/engine"
)

// find is the stream on a node that has not been asked about it.
func find(t *testing.T, h *Hub, id weir.StreamID) *Stream {
	t.Helper()
	s, err := h.Find(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put publishes under a sequence, or the next one for 0.
func put(t *testing.T, s *Stream, seq weir.Seq) weir.Ack {
	t.Helper()
	ack, err := s.Publish(ctx, &Publish{Chosen: seq > 0, Seq: seq, Batch: weir.Batch{Events: 1, Payload: []byte(`["x"]`)}})
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

// What one node acknowledged every other one knows when it is asked: streams, cursors, batches,
// duplicates, and what may be published.
func TestNoOldNews(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	for round := range 30 {
		id := made(t, a, nil).ID
		there, here := find(t, b, id), find(t, a, id)
		for i := range weir.Seq(3) {
			put(t, here, 0)
			if c, err := there.Cursor(ctx); err != nil || c.Cursor != i+1 {
				t.Fatalf("round %d: the cursor is %d on the other node, %v; want %d", round, c.Cursor, err, i+1)
			}
		}
		put(t, here, 1000)
		if _, err := there.Batch(ctx, 1000); err != nil {
			t.Fatalf("round %d: read on the other node: %v", round, err)
		}
		put(t, here, 2000)
		if ack, err := there.Decide(ctx, &Publish{Chosen: true, Seq: 3000}); ack != nil || err != nil {
			t.Fatalf("round %d: 3000 is within reach of 2000: %v, %v", round, ack, err)
		}
		put(t, here, 3000)
		put(t, there, 4000) // 1,000 ahead of what this node has not looked for
		put(t, here, 4500)
		if ack := put(t, there, 4000); !ack.Duplicate || ack.Cursor != 4500 {
			t.Fatalf("round %d: a duplicate got %+v", round, ack)
		}
		if list, _, _, err := b.List(ctx, here.Project, 0, 1, func(weir.StreamID) bool { return true }); err != nil || len(list) != 1 || list[0].ID != id || list[0].Cursor != 4500 {
			t.Fatalf("round %d: listed on the other node: %+v, %v", round, list, err)
		}
	}
}

// A stream that is deleted on one node is gone on the others, whether or not they had it open, and
// its subscribers hear of it. Its id can be used again at once, on any node.
func TestDeletedOnAnotherNode(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	id := made(t, a, func(s *Spec) { s.ID = weir.NewStreamID() }).ID
	spec := find(t, a, id).Spec
	put(t, find(t, a, id), 0)
	sub, err := find(t, b, id).Subscribe(ctx, Head)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if err := find(t, a, id).Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.Next(ctx, time.Minute); !errors.Is(err, ErrDeleted) {
		t.Errorf("the subscriber got %v", err)
	}
	if _, err := b.Create(ctx, spec); err != nil {
		t.Errorf("the id of a deleted stream on another node: %v", err)
	}
	if c, err := find(t, a, id).Cursor(ctx); err != nil || c.Cursor != 0 {
		t.Errorf("made again it has the cursor %d, %v", c.Cursor, err)
	}
	if _, err := a.Create(ctx, spec); code(err) != weir.StreamNameTaken {
		t.Errorf("taken by another node: %v", err)
	}
	if err := find(t, b, id).Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.catchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stream(id); code(err) != weir.StreamNotFound {
		t.Errorf("deleted on another node: %v", err)
	}
	if _, err := b.Find(ctx, "nothing"); code(err) != weir.StreamNotFound {
		t.Errorf("no such stream: %v", err)
	}
}

// A gap that one node closes is closed on all of them, by one decision.
func TestGapClosedOnce(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{GapGrace: 50 * time.Millisecond}), node(t, s, Options{GapGrace: 50 * time.Millisecond})
	id := made(t, a, nil).ID
	here, there := find(t, a, id), find(t, b, id)
	put(t, here, 1)
	sub, err := there.Subscribe(ctx, Oldest)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	put(t, here, 3)
	for n := 0; n < 2; {
		e, err := sub.Next(ctx, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		n += len(e.Frames)
	}
	for name, s := range map[string]*Stream{"here": here, "there": there} {
		_, err := s.Publish(ctx, &Publish{Chosen: true, Seq: 2, Batch: weir.Batch{Events: 1, Payload: []byte(`[]`)}})
		if code(err) != weir.InvalidSequence {
			t.Errorf("%s: 2 was given up, and published it gets %v", name, err)
		}
	}
	markers := 0
	sub.f.log.Headers(0, func(h engine.Header) bool {
		if h.Kind == engine.GapClosed {
			markers++
		}
		return true
	})
	if markers != 1 {
		t.Errorf("%d entries close the gap", markers)
	}
}

// A log that went on too far without a node is opened again.
func TestBehind(t *testing.T) {
	s := shared(t)
	h := node(t, s, Options{})
	st := find(t, h, made(t, h, nil).ID)
	put(t, st, 0)
	sub, err := st.Subscribe(ctx, Head)
	if err != nil {
		t.Fatal(err)
	}
	sub.f.Behind()
	if _, err := sub.Next(ctx, time.Minute); !errors.Is(err, ErrStopping) {
		t.Errorf("a subscriber of a feed that is behind got %v", err)
	}
	sub.Close()
	if ack := put(t, st, 0); ack.Seq != 2 || st.feed == sub.f {
		t.Errorf("published as %d, with the same feed: %v", ack.Seq, st.feed == sub.f)
	}
	st.feed.Behind()
	h.sweeper.sweep()
	if st.feed != nil {
		t.Error("a feed that is behind and nobody uses is there still")
	}
}

// What another node stored reaches subscribers as it is, also when there is nothing in it.
func TestEmptyBatchOfAnotherNode(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	id := made(t, a, nil).ID
	sub, err := find(t, b, id).Subscribe(ctx, Oldest)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for _, payload := range []string{"", "x", ""} {
		ack, err := find(t, a, id).Publish(ctx, &Publish{Batch: weir.Batch{Events: 1, Payload: []byte(payload)}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := sub.Next(ctx, time.Minute)
		if want := testFrame(nil, weir.Raw, &weir.Batch{Seq: ack.Seq, Payload: []byte(payload)}); err != nil || len(e.Frames) != 1 || !bytes.Equal(e.Frames[0], want) {
			t.Errorf("a subscriber of another node got %q, %v; want %q", e.Frames, err, want)
		}
	}
}

// What another node's batches took the place of is evicted here as well, for the first who reads
// it.
func TestEvictedByAnotherNode(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	id := made(t, a, func(s *Spec) { s.MaxBytes = 1 << 20 }).ID
	here, there := find(t, a, id), find(t, b, id)
	put(t, here, 0)
	large := &Publish{Batch: weir.Batch{Events: 1, Payload: bytes.Repeat([]byte("x"), 1<<20)}}
	if _, err := there.Publish(ctx, large); err != nil {
		t.Fatal(err)
	}
	if _, err := here.Batch(ctx, 1); err == nil || !strings.Contains(err.Error(), "was evicted") {
		t.Errorf("read what another node evicted: %v", err)
	}
	if size := here.SizeOf(ctx, 2); size != 1<<20 {
		t.Errorf("what another node stored has %d bytes", size)
	}
}
