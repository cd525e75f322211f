package access

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// distant is a shared store that reports the changes of other nodes only when CatchUp is called.
type distant struct {
	engine.Engine
	mu     sync.Mutex
	visit  func(engine.Change)
	unread []engine.Change
	asked  int
	fails  error
}

func (d *distant) Shared() bool { return true }

func (d *distant) Watch(_ context.Context, _ engine.Prefixes, visit func(engine.Change)) error {
	d.visit = visit
	return nil
}

func (d *distant) CatchUp(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	for _, c := range d.unread {
		d.visit(c)
	}
	d.unread = nil
	return d.fails
}

// A key that another node created is accepted even if the store has not reported it to this node:
// the node catches up first. A key that does not exist is refused after catching up. Many requests
// with unknown keys cause only a few requests to the store.
func TestKeyOfAnotherNode(t *testing.T) {
	docs := memory.New()
	there := open(t, docs)
	store := &distant{Engine: docs}
	here := open(t, store)
	_, secret := key(t, there, KeySpec{Project: project(t, there, "app").ID})
	for _, prefix := range []string{projectPrefix, keyPrefix} {
		if err := there.each(t.Context(), prefix, func(d engine.Document) error {
			store.unread = append(store.unread, engine.Change{Document: d})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	caller(t, here, secret)
	unknown := []string{"Bearer svc_live_0123456789abcdef0123456789abcdef"}
	store.asked = 0
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			_, err := here.Authenticate(unknown)
			want(t, "a key that does not exist", err, weir.InvalidAPIKey)
		})
	}
	all.Wait()
	store.mu.Lock()
	defer store.mu.Unlock()
	if store.asked == 0 || store.asked >= 200 {
		t.Errorf("the store was asked %d times, want 1 to 199", store.asked)
	}
	store.fails = engine.ErrUnavailable
	store.mu.Unlock()
	_, err := here.Authenticate(unknown)
	store.mu.Lock()
	want(t, "an unknown key while the store does not answer", err, weir.StorageUnavailable)
}

// meddling is a store that calls a function just before a deletion.
type meddling struct {
	engine.Engine
	before func(key string)
}

func (m *meddling) Delete(ctx context.Context, key string, rev engine.Revision) error {
	if before := m.before; before != nil {
		m.before = nil
		before(key)
	}
	return m.Engine.Delete(ctx, key, rev)
}

// If another project takes the old name during a rename, that project keeps the name.
func TestRenameKeepsANameTakenSince(t *testing.T) {
	docs := memory.New()
	store := &meddling{Engine: docs}
	a := open(t, store)
	p := project(t, a, "old")
	taken := weir.Project{ID: "another", Name: "old"}
	store.before = func(key string) {
		value, err := json.Marshal(taken)
		if err == nil {
			err = docs.Delete(t.Context(), key, 0)
		}
		if err == nil {
			_, err = docs.Create(t.Context(), key, value)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := a.RenameProject(t.Context(), p.ID, "new"); err != nil {
		t.Fatal(err)
	}
	if _, err := docs.Get(t.Context(), projectDocument("old")); errors.Is(err, engine.ErrNotFound) {
		t.Error("the rename deleted the project that took the old name")
	}
}
