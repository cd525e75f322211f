package service

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/access"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// fillable is an engine whose state a test sets. It counts the changes of documents.
type fillable struct {
	engine.Engine
	state   atomic.Uint32
	updates atomic.Int64
}

func (e *fillable) Status() engine.Status { return engine.Status{State: engine.State(e.state.Load())} }

func (e *fillable) Update(ctx context.Context, key string, value []byte, r engine.Revision) (engine.Document, error) {
	e.updates.Add(1)
	return e.Engine.Update(ctx, key, value, r)
}

// While the store is full, the last use of keys is not stored, because the space that is left is for
// revoking keys (D32). The last use is stored once there is space again.
func TestLastUseIsNotStoredOnAFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fillable{Engine: memory.New()}
		defer e.Close()
		a, err := access.Open(t.Context(), e, access.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.EnsureProject(t.Context(), "app")
		if err != nil {
			t.Fatal(err)
		}
		_, secret, err := a.CreateKey(t.Context(), access.KeySpec{Project: p.ID, Kind: access.Live})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Authenticate([]string{"Bearer " + secret.Reveal()}); err != nil {
			t.Fatal(err)
		}
		svc := &Service{Access: a, engine: e, logger: slog.New(slog.DiscardHandler), stopping: make(chan struct{})}
		e.state.Store(uint32(engine.Full))
		svc.work.Go(svc.keepUse)
		time.Sleep(3 * time.Minute)
		if n := e.updates.Load(); n != 0 {
			t.Errorf("%d writes to a full store", n)
		}
		e.state.Store(uint32(engine.Ready))
		time.Sleep(2 * time.Minute)
		if n := e.updates.Load(); n != 1 {
			t.Errorf("%d writes once there is space, want 1", n)
		}
		close(svc.stopping)
		svc.work.Wait()
	})
}
