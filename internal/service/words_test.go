package service

import (
	"encoding/json"
	"net/netip"
	"sync/atomic"
	"testing"

	"weir"
	"weir/internal/access"
	"weir/internal/engine/memory"
	"weir/internal/hub"
)

// What nodes tell each other has the counted requests and the sequences for which a node is
// receiving batches, and each is understood alone and together.
func TestWords(t *testing.T) {
	e := memory.New()
	defer e.Close()
	a, err := access.Open(t.Context(), e, access.Options{Limits: access.DefaultLimits})
	if err != nil {
		t.Fatal(err)
	}
	h, err := hub.Open(t.Context(), e, hub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	a.Share()
	w := words{a, new(atomic.Pointer[hub.Elsewhere])}
	if b := w.say(); b != nil {
		t.Errorf("without requests: %s, want nothing", b)
	}
	if _, err := h.Create(t.Context(), hub.Spec{ID: "one", Project: "project", Name: "one", Mode: weir.JSON, RetentionSeconds: 60, MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	s, err := h.Stream("one")
	if err != nil {
		t.Fatal(err)
	}
	p := &hub.Publish{Chosen: true, Seq: 1}
	if ack, err := s.Decide(t.Context(), p); ack != nil || err != nil {
		t.Fatalf("got acknowledgement %v and error %v, want neither", ack, err)
	}
	defer p.Release()
	for _, again := range []bool{false, true} { // first the sequences alone, then with a counted request
		w.elsewhere.Store(hub.NewElsewhere(h))
		b := w.say()
		var all map[string]json.RawMessage
		if err := json.Unmarshal(b, &all); err != nil || string(all["receiving"]) != `{"one":[1]}` {
			t.Errorf("the node tells %s, %v; want that it receives sequence 1", b, err)
		}
		w.hear(b)
		if counted := len(all) > 1; counted != again {
			t.Errorf("the node tells %s, want counted requests: %t", b, again)
		}
		a.Take(nil, netip.MustParseAddr("192.0.2.1"))
	}
}
