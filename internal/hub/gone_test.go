package hub

import (
	"context"
	"testing"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/enginetest"
)

// agrees checks that all answers about a stream follow from whether it exists, and that the store
// says the same. It leaves the stream deleted.
func agrees(t *testing.T, h *Hub, e engine.Engine, spec Spec) {
	t.Helper()
	// Behind whatever a caller left behind in the queue of the engine.
	if _, err := e.Create(ctx, "barrier/"+string(weir.NewStreamID()), nil); err != nil {
		t.Fatal(err)
	}
	_, err := e.Get(ctx, documentKey(spec.ID))
	exists := err == nil
	s, err := h.Find(ctx, spec.ID)
	if found := err == nil; found != exists {
		t.Errorf("stream in the store: %v, found: %v", exists, found)
	}
	list, _, _, err := h.List(ctx, spec.Project, 0, 10, func(weir.StreamID) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if listed := len(list) == 1; listed != exists || h.Count(spec.Project) != len(list) {
		t.Errorf("stream in the store: %v, listed: %v, counted: %d", exists, listed, h.Count(spec.Project))
	}
	if exists && s != nil {
		publish(t, s, at(1, "x"))
	}
	_, err = h.Create(ctx, spec)
	if taken := code(err) == weir.StreamNameTaken; taken != exists {
		t.Errorf("stream in the store: %v, create again: %v", exists, err)
	}
	if s, err = h.Find(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx); err != nil {
		t.Error("delete:", err)
	}
}

// A caller that leaves while its stream is created or deleted leaves memory and store in agreement
// (D33).
func TestCallerLeaves(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		spec := Spec{ID: weir.NewStreamID(), Project: "p", Name: "n", RetentionSeconds: 3600, MaxBytes: 1 << 30, Mode: weir.Raw}
		if _, err := h.Create(enginetest.Leaving(context.Background()), spec); err != nil {
			t.Error("the outcome is lost to the audit log:", err)
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
			t.Error("the outcome is lost to the audit log:", err)
		}
		agrees(t, h, e, spec)
	})
}

// Streams whose creators left count towards the limit of a project from the start, so leaving is no
// way around it.
func TestLimitHoldsForCallersThatLeft(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{StreamsPerProject: 3})
		defer h.Close()
		for range 10 { // the limit refuses all but three
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

// A stream on its way from the store to the caller that created it counts once towards the limit: a
// project can have as many streams as it may have.
func TestCreationsReachTheLimit(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		const limit = 2
		h := open(t, e, Options{StreamsPerProject: limit})
		defer h.Close()
		spec := Spec{ID: weir.NewStreamID(), Project: "p", Name: "n", RetentionSeconds: 3600, MaxBytes: 1 << 30, Mode: weir.Raw}
		// Called after the hub, before Create returns.
		err := e.Watch(ctx, func(c engine.Change) {
			if h.Count("p") != 1 {
				t.Errorf("%d streams in the catalog, want 1", h.Count("p"))
			}
			second := Spec{ID: weir.NewStreamID(), Project: "p"}
			if refused := h.catalog.reserve(&second, limit); refused != nil {
				t.Error("the second stream:", refused)
			}
			if h.catalog.reserve(&Spec{ID: weir.NewStreamID(), Project: "p"}, limit) == nil {
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
