package hub

import (
	"testing"

	"weir"
	"weir/internal/engine"
)

// A stream begins at the sequence that Begin was called with, also after the hub is opened again,
// whether its first batch is stored or not.
func TestStreamThatBeginsLate(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, nil)
		if err := Begin(ctx, s, 5000); err != nil {
			t.Fatal(err)
		}
		for i, want := range []weir.Seq{5000, 5001} {
			h.Close()
			h = open(t, e, Options{})
			var err error
			if s, err = h.Stream(s.ID); err != nil {
				t.Fatal(err)
			}
			if oldest, end, err := s.Bounds(ctx); err != nil || oldest != 5000 || end.Tail != want {
				t.Fatalf("after %d batches the stream reaches from %d to %d, %v; want 5000 to %d", i, oldest, end.Tail, err, want)
			}
			if ack := publish(t, s, keyed(i)); ack.Seq != want {
				t.Errorf("got sequence %d, want %d", ack.Seq, want)
			}
		}
		if err := Begin(ctx, s, 9000); err != nil {
			t.Fatal(err)
		}
		if oldest, end, err := s.Bounds(ctx); err != nil || oldest != 5000 || end.Tail != 5002 {
			t.Errorf("after Begin was called for a stream with batches, it reaches from %d to %d, %v; want 5000 to 5002", oldest, end.Tail, err)
		}
		h.Close()
	})
}

// The stream begins at the same sequence on another node, even if that node had opened the log when
// it was empty. Otherwise the other node would acknowledge batches below this sequence.
func TestStreamThatBeginsLateOnTwoNodes(t *testing.T) {
	store := shared(t)
	a, b := node(t, store, Options{}), node(t, store, Options{})
	s := made(t, a, nil)
	other, err := b.Find(ctx, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.Bounds(ctx); err != nil {
		t.Fatal(err)
	}
	if err := Begin(ctx, s, 5000); err != nil {
		t.Fatal(err)
	}
	publish(t, s, keyed(1))
	if oldest, end, err := other.Bounds(ctx); err != nil || oldest != 5000 || end.Tail != 5001 {
		t.Errorf("on the other node the stream reaches from %d to %d, %v; want 5000 to 5001", oldest, end.Tail, err)
	}
	if _, err := other.Publish(ctx, at(7, "late")); code(err) != weir.InvalidSequence {
		t.Errorf("publish of a batch below the beginning: got %v, want a refusal", err)
	}
}
