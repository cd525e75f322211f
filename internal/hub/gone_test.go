package hub

import (
	"context"
	"testing"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/enginetest"
)

// agrees checks that the hub and the store agree on whether a stream exists: in Find, List, Count
// and Create. It deletes the stream at the end.
func agrees(t *testing.T, h *Hub, e engine.Engine, spec Spec) {
	t.Helper()
	// The engine handles this change after any change that a departed caller left in its queue.
	if _, err := e.Create(ctx, "barrier/"+string(weir.NewStreamID()), nil); err != nil {
		t.Fatal(err)
	}
	_, err := e.Get(ctx, documentKey(spec.ID))
	exists := err == nil
	s, err := h.Find(ctx, spec.ID)
	if found := err == nil; found != exists {
		t.Errorf("the stream is in the store: %v, but Find found it: %v", exists, found)
	}
	list, _, _, err := h.List(ctx, spec.Project, 0, 10, func(weir.StreamID) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if listed := len(list) == 1; listed != exists || h.Count(spec.Project) != len(list) {
		t.Errorf("the stream is in the store: %v, but List listed it: %v, and Count is %d", exists, listed, h.Count(spec.Project))
	}
	if exists && s != nil {
		publish(t, s, at(1, "x"))
	}
	_, err = h.Create(ctx, spec)
	if taken := code(err) == weir.StreamNameTaken; taken != exists {
		t.Errorf("the stream is in the store: %v, but creating it again returned %v", exists, err)
	}
	if s, err = h.Find(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx); err != nil {
		t.Error("deleting the stream:", err)
	}
}

// The hub's memory and the store agree even if a caller leaves while its stream is being created or
// deleted (D33).
func TestCallerLeaves(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		spec := Spec{ID: weir.NewStreamID(), Project: "p", Name: "n", RetentionSeconds: 3600, MaxBytes: 1 << 30, Mode: weir.Raw}
		if _, err := h.Create(enginetest.Leaving(context.Background()), spec); err != nil {
			t.Error("Create returned an error, so the audit log would miss the outcome:", err)
		}
		agrees(t, h, e, spec)

		if _, err := h.Create(ctx, spec); err != nil {
			t.Fatal(err)
		}
		s, err := h.Stream(spec.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(enginetest.Leaving(context.Background())); err != nil {
			t.Error("Delete returned an error, so the audit log would miss the outcome:", err)
		}
		agrees(t, h, e, spec)
	})
}

// A stream counts towards the limit of its project from the start of its creation, even if the
// caller leaves. So a client cannot exceed the limit by leaving.
func TestLimitHoldsForCallersThatLeft(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{StreamsPerProject: 3})
		defer h.Close()
		for range 10 { // the limit allows only three of these streams
			h.Create(enginetest.Leaving(context.Background()), Spec{Project: "p", Name: "n", RetentionSeconds: 3600, MaxBytes: 1 << 30, Mode: weir.Raw})
		}
		if _, err := e.Create(ctx, "barrier", nil); err != nil {
			t.Fatal(err)
		}
		docs, err := e.List(ctx, documents, "", 100)
		if err != nil || len(docs) != 3 || h.Count("p") != 3 {
			t.Errorf("the store has %d streams of the project and the catalog %d, want 3 (%v)", len(docs), h.Count("p"), err)
		}
	})
}

// A stream counts once towards the limit of its project, even between the store's report of the
// creation and the return of Create. So a project can have exactly as many streams as the limit
// allows.
func TestCreationsReachTheLimit(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		const limit = 2
		h := open(t, e, Options{StreamsPerProject: limit})
		defer h.Close()
		spec := Spec{ID: weir.NewStreamID(), Project: "p", Name: "n", RetentionSeconds: 3600, MaxBytes: 1 << 30, Mode: weir.Raw}
		// The engine calls this watcher after the hub's watcher and before Create returns.
		err := e.Watch(ctx, engine.Everything, func(c engine.Change) {
			if h.Count("p") != 1 {
				t.Errorf("the catalog has %d streams, want 1", h.Count("p"))
			}
			second := Spec{ID: weir.NewStreamID(), Project: "p"}
			if refused := h.catalog.reserve(&second, limit, nil); refused != nil {
				t.Error("the second stream was refused:", refused)
			}
			if h.catalog.reserve(&Spec{ID: weir.NewStreamID(), Project: "p"}, limit, nil) == nil {
				t.Error("a third stream was not refused")
			}
			h.catalog.unreserve(&second)
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Create(ctx, spec); err != nil {
			t.Error(err)
		}
	})
}
