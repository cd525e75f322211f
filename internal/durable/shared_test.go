package durable_test

import (
	"context"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/durable"
	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/hub"
)

// sharedStore is a store that other nodes use too. It counts how often this node waits for them.
type sharedStore struct {
	engine.Engine
	waits atomic.Int64
}

func (s *sharedStore) Shared() bool                      { return true }
func (s *sharedStore) CatchUp(ctx context.Context) error { s.waits.Add(1); return nil }

// An event loop never waits for other nodes, also on a node that serves requests while it is cut off
// from them and so has no lease.
func TestServeLaterOnASharedStore(t *testing.T) {
	e := &sharedStore{Engine: memory.New()}
	h, err := hub.Open(t.Context(), e, hub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	a, err := access.Open(t.Context(), e, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateProject(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	v1 := api.New(api.Options{Hub: h, Access: a})
	ds := durable.New(durable.Options{Hub: h, Access: a, API: v1, Open: "p"})
	before := e.waits.Load()
	w := loopWriter{httptest.NewRecorder(), make(chan interface{ Finish() }, 1)}
	if taken, _ := ds.ServeLater(w, httptest.NewRequest("PUT", "/ds/a", nil)); taken {
		t.Error("an event loop took the creation of a stream under /ds")
	}
	r := httptest.NewRequest("POST", "/v1/streams", nil)
	r.Header.Set("Authorization", "Bearer svc_test_0123456789abcdef0123456789abcde0")
	if taken, _ := v1.ServeLater(w, r); taken {
		t.Error("an event loop took the creation of a stream under /v1")
	}
	if n := e.waits.Load() - before; n != 0 {
		t.Errorf("the event loop waited %d times for other nodes", n)
	}
}
