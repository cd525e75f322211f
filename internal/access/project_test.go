package access

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

func TestProjectNames(t *testing.T) {
	for _, tc := range []struct {
		what, name string
		code       weir.Code
	}{
		{"one character", "a", ""},
		{"128 code points of four bytes", strings.Repeat("😀", 128), ""},
		{"spaces and colons", "my project: one", ""},
		{"empty", "", weir.InvalidRequest},
		{"129 code points", strings.Repeat("é", 129), weir.InvalidRequest},
		{"invalid UTF-8", "a\xff", weir.InvalidRequest},
		{"a line break", "a\nb", weir.InvalidRequest},
		{"an escape sequence", "\x1b[2J", weir.InvalidRequest},
		{"the demo's name", "demo", weir.InvalidRequest},
		{"a key", "svc_live_00000000000000000000000000000000", weir.InvalidRequest},
	} {
		for _, demo := range []bool{true, false} {
			a := open(t, store(), func(o *Options) { o.Demo = demo })
			p, err := a.CreateProject(t.Context(), tc.name)
			want(t, tc.what, err, tc.code)
			if err == nil && (p.Name != tc.name || !weir.IsID(string(p.ID)) || p.CreatedAt == 0) {
				t.Errorf("%s: created %+v", tc.what, p)
			}
			_, err = a.EnsureProject(t.Context(), tc.name)
			want(t, "ensure "+tc.what, err, tc.code)
		}
	}
}

func TestProjectLists(t *testing.T) {
	clock := newClock()
	a := open(t, store(), clock.set)
	var made []weir.Project
	for _, name := range []string{"zebra", "ant", "fox"} {
		made = append(made, project(t, a, name))
		clock.advance(1e9)
	}
	list := a.Projects()
	if len(list) != 3 || list[0] != made[0] || list[1] != made[1] || list[2] != made[2] {
		t.Errorf("listed %v, want %v", list, made)
	}
	for _, p := range made {
		if q, ok := a.Project(p.ID); !ok || q != p {
			t.Errorf("by id: %v, want %v", q, p)
		}
		if q, ok := a.ProjectNamed(p.Name); !ok || q != p {
			t.Errorf("by name: %v, want %v", q, p)
		}
		if q, err := a.EnsureProject(t.Context(), p.Name); err != nil || q != p {
			t.Errorf("EnsureProject returned %v (%v), want %v", q, err, p)
		}
		_, err := a.CreateProject(t.Context(), p.Name)
		want(t, "a taken name", err, weir.InvalidRequest)
	}
	if _, ok := a.ProjectNamed("Fox"); ok {
		t.Error("found a project by a name with different case")
	}
	if _, ok := a.Project(""); ok {
		t.Error("found a project without an id")
	}
}

func TestDemoProject(t *testing.T) {
	for _, demo := range []bool{true, false} {
		a := open(t, store(), func(o *Options) { o.Demo = demo })
		p, ok := a.Project(DemoProject)
		q, named := a.ProjectNamed(DemoProjectName)
		if ok != demo || named != demo || p != q || len(a.Projects()) != 0 {
			t.Errorf("the demo is on: %t; the demo project is %v by id and %v by name", demo, p, q)
		}
		if !weir.IsID(string(DemoProject)) || !weir.IsID(string(DemoStream)) {
			t.Error("the demo's ids do not have the form of ids")
		}
	}
}

// If many callers on two nodes create a project with the same name, exactly one succeeds.
// EnsureProject returns the same project to all of them.
func TestProjectNamesAreUnique(t *testing.T) {
	docs := store()
	nodes := []*Access{open(t, docs), open(t, docs)}
	var group sync.WaitGroup
	var made atomic.Int64
	var ids sync.Map
	for i := range 32 {
		group.Go(func() {
			if _, err := nodes[i%2].CreateProject(t.Context(), "one"); err == nil {
				made.Add(1)
			}
			p, err := nodes[i%2].EnsureProject(t.Context(), "one")
			if err != nil {
				t.Error(err)
			}
			ids.Store(p.ID, true)
		})
	}
	group.Wait()
	distinct := 0
	ids.Range(func(any, any) bool { distinct++; return true })
	if made.Load() != 1 || distinct != 1 {
		t.Errorf("created %d times with %d ids, want once with one id", made.Load(), distinct)
	}
}

func TestProjectStorage(t *testing.T) {
	docs := store()
	a := open(t, docs)
	for _, fault := range []error{engine.ErrFull, engine.ErrReadOnly, engine.ErrClosed} {
		docs.failure(fault)
		_, err := a.CreateProject(t.Context(), "app")
		want(t, fault.Error(), err, weir.StorageUnavailable)
		if !errors.Is(err, fault) {
			t.Errorf("%v does not wrap %v", err, fault)
		}
		if len(a.Projects()) != 0 {
			t.Error("the project is in memory although it was not stored")
		}
	}
}

// A rename keeps the project's id and frees its old name, also after a restart. If a rename was
// interrupted before it deleted the document of the old name, the next start deletes it.
func TestRenameProject(t *testing.T) {
	docs := store()
	a := open(t, docs)
	p, q := project(t, a, "before"), project(t, a, "taken")
	for _, c := range []struct {
		id   weir.ProjectID
		name string
		code weir.Code
	}{
		{p.ID, "taken", weir.InvalidRequest}, {p.ID, "", weir.InvalidRequest}, {p.ID, "demo", weir.InvalidRequest},
		{DemoProject, "x", weir.InvalidRequest}, {"none", "x", weir.NotFound}, {p.ID, "before", ""}, {p.ID, "after", ""},
	} {
		_, err := a.RenameProject(t.Context(), c.id, c.name)
		want(t, string(c.id)+" to "+c.name, err, c.code)
	}
	check := func(a *Access, what string) {
		t.Helper()
		got, ok := a.ProjectNamed("after")
		if !ok || got.ID != p.ID || got.CreatedAt != p.CreatedAt {
			t.Errorf("%s: the project named \"after\" is %+v, want id %s", what, got, p.ID)
		}
		if _, ok := a.ProjectNamed("before"); ok {
			t.Errorf("%s: the old name still exists", what)
		}
		if list := a.Projects(); len(list) != 2 {
			t.Errorf("%s: got %+v, want 2 projects", what, list)
		}
	}
	check(a, "immediately")
	check(open(t, docs), "after a restart")

	// An interrupted rename: the document of the old name still exists.
	if _, err := docs.Create(t.Context(), projectDocument("cut"), []byte(`{"id":"`+string(q.ID)+`","name":"cut","created_at":"2026-11-15T00:00:00.000Z"}`)); err != nil {
		t.Fatal(err)
	}
	b := open(t, docs)
	if got, _ := b.Project(q.ID); got.Name != "cut" {
		t.Errorf("got %+v, want the name in the later document", got)
	}
	if _, err := docs.Get(t.Context(), projectDocument("taken")); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("the document of the old name still exists: %v", err)
	}
	if _, err := b.CreateProject(t.Context(), "taken"); err != nil {
		t.Errorf("create a project with the old name: %v", err)
	}
}

// Deleting a project revokes its keys first. If the function ready then fails, the project stays.
// The name of a deleted project is free, also for another process on the same store.
func TestDeleteProject(t *testing.T) {
	docs := store()
	a := open(t, docs)
	p, other := project(t, a, "shop"), project(t, a, "other")
	makeKey := func(id weir.ProjectID) Key {
		t.Helper()
		k, _, err := a.CreateKey(t.Context(), KeySpec{Project: id, Kind: Live})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	one, two, kept := makeKey(p.ID), makeKey(p.ID), makeKey(other.ID)
	if _, err := a.Revoke(t.Context(), one.ID); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("not yet")
	revoked, err := a.DeleteProject(t.Context(), p.ID, func() error {
		if k, _ := a.Key(two.ID); k.RevokedAt == nil {
			t.Error("ready was called before the keys were revoked")
		}
		return failure
	})
	if _, ok := a.Project(p.ID); !ok || err != failure || revoked != 1 {
		t.Errorf("the project must stay: %d keys revoked, error %v, still there: %t", revoked, err, ok)
	}
	late := Key{}
	revoked, err = a.DeleteProject(t.Context(), p.ID, func() error {
		late = makeKey(p.ID)
		return nil
	})
	if err != nil || revoked != 1 {
		t.Errorf("%d keys revoked, want the one that was created meanwhile; error %v", revoked, err)
	}
	for _, a := range []*Access{a, open(t, docs)} {
		if _, ok := a.Project(p.ID); ok || len(a.Projects()) != 1 {
			t.Errorf("the projects are %v, want only the other one", a.Projects())
		}
		if k, _ := a.Key(late.ID); k.RevokedAt == nil {
			t.Error("a key of the deleted project is not revoked")
		}
		if k, _ := a.Key(kept.ID); k.RevokedAt != nil {
			t.Error("a key of another project is revoked")
		}
	}
	_, err = a.DeleteProject(t.Context(), p.ID, func() error { return nil })
	want(t, "delete it again", err, weir.NotFound)
	_, err = a.DeleteProject(t.Context(), DemoProject, func() error { return nil })
	want(t, "delete the demo", err, weir.InvalidRequest)
	if again := project(t, a, "shop"); again.ID == p.ID {
		t.Error("the new project has the id of the deleted one")
	}
}

// hasty is a store in which something happens just before a key is stored.
type hasty struct {
	engine.Documents
	before func()
	fails  error // the error of a change of a document
}

func (h *hasty) Update(ctx context.Context, key string, value []byte, revision engine.Revision) (engine.Document, error) {
	if h.fails != nil {
		return engine.Document{}, h.fails
	}
	return h.Documents.Update(ctx, key, value, revision)
}

func (h *hasty) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	if before := h.before; before != nil && IsKeyDocument(key) {
		h.before = nil
		before()
	}
	return h.Documents.Create(ctx, key, value)
}

// A key that is stored just after its project was deleted is refused: nobody could find and revoke
// it.
func TestKeyForAProjectThatIsBeingDeleted(t *testing.T) {
	docs := &hasty{Documents: memory.New()}
	a := open(t, docs)
	p := project(t, a, "shop")
	docs.before = func() {
		if _, err := a.DeleteProject(t.Context(), p.ID, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if k, _, err := a.CreateKey(t.Context(), KeySpec{Project: p.ID, Kind: Live}); !errors.Is(err, ErrNoProject) {
		t.Errorf("a key of a deleted project: %v, %v; want %v", k, err, ErrNoProject)
	}
	for _, k := range a.Keys(p.ID) {
		if k.RevokedAt == nil {
			t.Errorf("key %s of the deleted project is valid", k.ID)
		}
	}
}

// The key cannot be revoked if the store fails at that moment. A repeated request does not return it.
func TestKeyForADeletedProjectIsNotRepeated(t *testing.T) {
	docs := &hasty{Documents: memory.New()}
	a := open(t, docs)
	p := project(t, a, "shop")
	docs.before = func() {
		if _, err := a.DeleteProject(t.Context(), p.ID, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		docs.fails = engine.ErrFull
	}
	spec := KeySpec{Project: p.ID, Kind: Live}
	if k, _, _, err := a.CreateKeyOnce(t.Context(), spec, "token", "one"); err == nil {
		t.Errorf("a key of a deleted project: %v", k)
	}
	docs.fails = nil
	if k, _, _, err := a.CreateKeyOnce(t.Context(), spec, "token", "one"); !errors.Is(err, ErrNoProject) {
		t.Errorf("the repeated request: %v, %v; want %v", k, err, ErrNoProject)
	}
}
