package durable_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"weir"
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
	waits  atomic.Int64
	cutOff atomic.Bool // this node cannot reach the others
}

func (s *sharedStore) Shared() bool { return true }

func (s *sharedStore) CatchUp(context.Context) error {
	if s.waits.Add(1); s.cutOff.Load() {
		return engine.ErrUnavailable
	}
	return nil
}

// openShared opens the service under /ds on a shared store, where callers need no key.
func openShared(t *testing.T, e *sharedStore) (*hub.Hub, *api.Handler, *durable.Handler, weir.ProjectID) {
	t.Helper()
	h, err := hub.Open(t.Context(), e, hub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	a, err := access.Open(t.Context(), e, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.CreateProject(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	v1 := api.New(api.Options{Hub: h, Access: a})
	return h, v1, durable.New(durable.Options{Hub: h, Access: a, API: v1, Open: "p"}), p.ID
}

// A node that is cut off from the others does not say that a stream is still being created: another
// node may have completed it. The node answers 503, and 404 when it can reach the others.
func TestPendingWhileCutOff(t *testing.T) {
	e := &sharedStore{Engine: memory.New()}
	h, _, ds, project := openShared(t, e)
	created, err := h.Create(t.Context(), hub.Spec{
		Project: project, Name: "pending", Mode: weir.Raw, MaxBytes: weir.MinMaxBytes, RetentionSeconds: 3600,
		Attributes: `{"path":"a","type":"text/plain","pending":true}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusNotFound} {
		e.cutOff.Store(want == http.StatusServiceUnavailable)
		w := httptest.NewRecorder()
		ds.ServeHTTP(w, httptest.NewRequest("GET", "/ds/"+string(created.ID)+"?offset=-1", nil))
		if w.Code != want {
			t.Errorf("cut off: %v; response %d %s, want %d", e.cutOff.Load(), w.Code, w.Body, want)
		}
	}
}

// An event loop never waits for other nodes, also on a node that serves requests while it is cut off
// from them and so has no lease.
func TestServeLaterOnASharedStore(t *testing.T) {
	e := &sharedStore{Engine: memory.New()}
	_, v1, ds, _ := openShared(t, e)
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
