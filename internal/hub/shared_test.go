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

// find returns the stream with this id, after the hub has caught up with the other nodes.
func find(t *testing.T, h *Hub, id weir.StreamID) *Stream {
	t.Helper()
	s, err := h.Find(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put publishes a batch under the sequence seq, or under the sequence above the cursor if seq is 0.
func put(t *testing.T, s *Stream, seq weir.Seq) weir.Ack {
	t.Helper()
	ack, err := s.Publish(ctx, &Publish{Chosen: seq > 0, Seq: seq, Batch: weir.Batch{Events: 1, Payload: []byte(`["x"]`)}})
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

// The answers of a node include everything that any node has acknowledged before: streams, cursors,
// batches, duplicates, and how far above the cursor a batch may be published.
func TestNodesSeeEachOthersWrites(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	for round := range 30 {
		id := made(t, a, nil).ID
		there, here := find(t, b, id), find(t, a, id)
		for i := range weir.Seq(3) {
			put(t, here, 0)
			if c, err := there.Cursor(ctx); err != nil || c.Cursor != i+1 {
				t.Fatalf("round %d: the cursor on the other node is %d, %v; want %d", round, c.Cursor, err, i+1)
			}
		}
		put(t, here, 1000)
		if _, err := there.Batch(ctx, 1000); err != nil {
			t.Fatalf("round %d: read on the other node: %v", round, err)
		}
		put(t, here, 2000)
		if ack, err := there.Decide(ctx, &Publish{Chosen: true, Seq: 3000}); ack != nil || err != nil {
			t.Fatalf("round %d: deciding on 3000 while the cursor is 2000: %v, %v; want no decision yet and no error", round, ack, err)
		}
		put(t, here, 3000)
		put(t, there, 4000) // not too far above the cursor 3000, but node b has not read batch 3000 yet
		put(t, here, 4500)
		if ack := put(t, there, 4000); !ack.Duplicate || ack.Cursor != 4500 {
			t.Fatalf("round %d: publishing 4000 again got %+v, want a duplicate with cursor 4500", round, ack)
		}
		if list, _, _, err := b.List(ctx, here.Project, 0, 1, func(weir.StreamID) bool { return true }); err != nil || len(list) != 1 || list[0].ID != id || list[0].Cursor != 4500 {
			t.Fatalf("round %d: the other node listed %+v, %v; want the stream with cursor 4500", round, list, err)
		}
	}
}

// A stream that one node deletes is deleted on all nodes, whether or not they have the stream open.
// Its subscribers get ErrDeleted. The id can be reused immediately, on any node.
func TestDeletedOnAnotherNode(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	id := made(t, a, func(s *Spec) { s.ID = weir.NewStreamID() }).ID
	spec := find(t, a, id).Spec()
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
		t.Errorf("the subscriber got %v, want %v", err, ErrDeleted)
	}
	if _, err := b.Create(ctx, spec); err != nil {
		t.Errorf("reuse the id of a stream that another node deleted: %v", err)
	}
	if c, err := find(t, a, id).Cursor(ctx); err != nil || c.Cursor != 0 {
		t.Errorf("the cursor of the recreated stream is %d, %v; want 0", c.Cursor, err)
	}
	if _, err := a.Create(ctx, spec); code(err) != weir.StreamNameTaken {
		t.Errorf("create a stream whose id another node has taken: %v", err)
	}
	if err := find(t, b, id).Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.engine.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stream(id); code(err) != weir.StreamNotFound {
		t.Errorf("find a stream that another node deleted: %v", err)
	}
	if _, err := b.Find(ctx, "nothing"); code(err) != weir.StreamNotFound {
		t.Errorf("find an unknown stream: %v", err)
	}
}

// A single entry in the log closes a gap on all nodes.
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
			t.Errorf("%s: publishing 2 into a closed gap gives %v", name, err)
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
		t.Errorf("%d entries close the gap, want 1", markers)
	}
}

// The feed of a stream (its open log and its state) falls behind if this node can no longer follow
// the stream's log. The next use of the stream reopens the log.
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
		t.Errorf("a subscriber of a feed that fell behind got %v, want %v", err, ErrStopping)
	}
	sub.Close()
	if ack := put(t, st, 0); ack.Seq != 2 || st.traffic.open() == sub.f {
		t.Errorf("published as %d, same feed: %v; want 2 with a new feed", ack.Seq, st.traffic.open() == sub.f)
	}
	st.traffic.open().Behind()
	h.sweeper.sweep()
	if st.traffic.open() != nil {
		t.Error("the sweeper did not close an unused feed that fell behind")
	}
}

// Subscribers get a batch of another node unchanged, even if the batch is empty.
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

// If a publish on another node evicts a batch, the next read on this node reports it as evicted.
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
	// Batch does not ask the other nodes about a batch that this node knows. Object always asks
	// them, so it is called first.
	if o, err := here.Object(ctx); err != nil || o.Cursor != 2 {
		t.Fatalf("the cursor is %d, %v; want 2", o.Cursor, err)
	}
	if _, err := here.Batch(ctx, 1); err == nil || !strings.Contains(err.Error(), "was evicted") {
		t.Errorf("reading a batch that another node evicted: %v", err)
	}
	if size := here.SizeOf(ctx, 2); size != 1<<20 {
		t.Errorf("SizeOf another node's batch is %d, want %d", size, 1<<20)
	}
}
