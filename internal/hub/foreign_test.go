package hub

import (
	"maps"
	"strings"
	"testing"
	"time"

	"weir"
)

// A trim that was asked for before another node appended and trimmed further says what holds at its place: nothing that was
// evicted is open again on a node that reads the log anew.
func TestTrimOvertaken(t *testing.T) {
	for name, upTo := range map[string]weir.Seq{"further": 20, "all that it knew": 40} {
		t.Run(name, func(t *testing.T) {
			s := shared(t)
			a, b := node(t, s, Options{}), node(t, s, Options{})
			here := made(t, a, func(s *Spec) { s.MaxBytes = 1000 })
			there := find(t, b, here.ID)
			load := strings.Repeat("x", 100)
			for seq := range weir.Seq(15) {
				publish(t, here, at(seq+1, load))
			}
			f, err := here.acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer f.release()
			low, note := f.Note()
			for seq := weir.Seq(16); seq <= upTo; seq++ {
				publish(t, there, at(seq, load))
			}
			g, err := there.acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer g.release()
			g.trim()
			if err := f.catchUp(ctx); err != nil {
				t.Fatal(err)
			}
			if err := f.log.Trim(ctx, low, note); err != nil {
				t.Fatal(err)
			}
			third := find(t, node(t, s, Options{}), here.ID)
			if c, err := third.Cursor(ctx); err != nil || c.Cursor != upTo {
				t.Fatalf("a third node has the cursor %d, %v", c.Cursor, err)
			}
			for _, seq := range []weir.Seq{low + 1, upTo - 10} {
				if ack, err := third.Publish(ctx, at(seq, "again")); code(err) != weir.InvalidSequence {
					t.Errorf("%d was evicted, and published again it gets %+v, %v", seq, ack, err)
				}
			}
		})
	}
}

// A batch without a byte comes through from another node as what it is.
func TestNothingFromAnotherNode(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	here := made(t, a, nil)
	sub, err := find(t, b, here.ID).Subscribe(ctx, Oldest)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for seq := weir.Seq(1); seq <= 3; seq++ {
		publish(t, here, at(seq, ""))
		e, err := sub.Next(ctx, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		got := maps.Collect(batchesOf(e))
		if payload, ok := got[seq]; !ok || payload != "" || len(got) != 1 {
			t.Errorf("published was %d, delivered %q", seq, got)
		}
	}
}

// What another node published is read once, however many subscribe to it here.
func TestReadOnceForAll(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	here := made(t, a, nil)
	var subs []*Subscription
	for range 3 {
		sub, err := find(t, b, here.ID).Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		subs = append(subs, sub)
	}
	publish(t, here, at(1, "hello"))
	var first *byte
	for i, sub := range subs {
		e, err := sub.Next(ctx, time.Minute)
		if err != nil || len(e.Frames) != 1 {
			t.Fatalf("subscriber %d got %d frames, %v", i, len(e.Frames), err)
		}
		if got := maps.Collect(batchesOf(e)); got[1] != "hello" {
			t.Errorf("subscriber %d got %q", i, got)
		}
		if i == 0 {
			first = &e.Frames[0][0]
		} else if first != &e.Frames[0][0] {
			t.Errorf("subscriber %d has a frame of its own", i)
		}
	}
}
