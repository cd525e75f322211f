package access

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// counted is a store that counts its calls, and refuses changes on demand.
type counted struct {
	engine.Documents
	calls  atomic.Int64
	writes atomic.Int64

	mu    sync.Mutex
	fault error // what changes return
}

func (c *counted) failure(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = err
}

func (c *counted) write() error {
	c.calls.Add(1)
	c.writes.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

func (c *counted) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	if err := c.write(); err != nil {
		return engine.Document{}, err
	}
	return c.Documents.Create(ctx, key, value)
}

func (c *counted) Update(ctx context.Context, key string, value []byte, rev engine.Revision) (engine.Document, error) {
	if err := c.write(); err != nil {
		return engine.Document{}, err
	}
	return c.Documents.Update(ctx, key, value, rev)
}

func (c *counted) Get(ctx context.Context, key string) (engine.Document, error) {
	c.calls.Add(1)
	return c.Documents.Get(ctx, key)
}

func (c *counted) List(ctx context.Context, prefix, after string, limit int) ([]engine.Document, error) {
	c.calls.Add(1)
	return c.Documents.List(ctx, prefix, after, limit)
}

func store() *counted { return &counted{Documents: memory.New()} }

// open opens access on a store, with the demo.
func open(t testing.TB, docs engine.Documents, change ...func(*Options)) *Access {
	t.Helper()
	o := Options{Limits: DefaultLimits, Demo: true}
	for _, c := range change {
		c(&o)
	}
	a, err := Open(t.Context(), docs, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func project(t testing.TB, a *Access, name string) weir.Project {
	t.Helper()
	p, err := a.CreateProject(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func key(t testing.TB, a *Access, s KeySpec) (Key, string) {
	t.Helper()
	if s.Kind == "" {
		s.Kind = Live
	}
	k, secret, err := a.CreateKey(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return k, secret.Reveal()
}

// caller authenticates a key.
func caller(t testing.TB, a *Access, secret string) *Grant {
	t.Helper()
	g, err := a.Authenticate([]string{"Bearer " + secret})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// code is the code of an error that a caller may see; empty for no error.
func code(t testing.TB, err error) weir.Code {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *weir.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no *weir.Error", err)
	}
	if e.Message == "" {
		t.Errorf("%s without a message", e.Code)
	}
	return e.Code
}

func want(t testing.TB, what string, err error, c weir.Code) {
	t.Helper()
	if got := code(t, err); got != c {
		t.Errorf("%s: %v, want %q", what, err, c)
	}
}

// clock is a time that tests move.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.at.Store(time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

// now lets others run first, as a loaded machine does at the worst moment.
func (c *clock) now() time.Time {
	at := c.at.Load()
	runtime.Gosched()
	return time.Unix(0, at)
}

func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }
func (c *clock) set(o *Options)          { o.Now = c.now }

func TestOpenRefusesWhatItCannotRead(t *testing.T) {
	for name, doc := range map[string][2]string{
		"a key that is no JSON":              {keyPrefix + digestHex("x"), "{"},
		"a key not named after a digest":     {keyPrefix + "abc", "{}"},
		"a key named after a longer digest":  {keyPrefix + digestHex("x") + "00", "{}"},
		"a key named after no hex":           {keyPrefix + "zz" + digestHex("x")[2:], "{}"},
		"a project that is no JSON":          {projectPrefix + "x", "nonsense"},
		"a project with a time that is none": {projectPrefix + "x", `{"id":"x","created_at":"soon"}`},
	} {
		docs := memory.New()
		if _, err := docs.Create(t.Context(), doc[0], []byte(doc[1])); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), docs, Options{}); err == nil {
			t.Errorf("opened with %s", name)
		}
	}
	for _, n := range []int{-1, 1 << 31} {
		_, err := Open(t.Context(), memory.New(), Options{Limits: Limits{Test: n}})
		want(t, "a limit out of range", err, weir.InvalidRequest)
	}
	docs := memory.New()
	docs.Close()
	if _, err := Open(t.Context(), docs, Options{}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("opened on a closed store: %v", err)
	}
}

func digestHex(s string) string { return digestOf(s).document()[len(keyPrefix):] }

func TestOpenReadsEveryPage(t *testing.T) {
	docs := memory.New()
	a := open(t, docs)
	p := project(t, a, "many")
	secrets := make([]string, 2*page+3)
	for i := range secrets {
		_, secrets[i] = key(t, a, KeySpec{Project: p.ID})
	}
	a = open(t, docs)
	for _, s := range secrets {
		caller(t, a, s)
	}
	if n := len(a.Keys(p.ID)); n != len(secrets) {
		t.Errorf("%d keys after a restart, want %d", n, len(secrets))
	}
}

func TestRestart(t *testing.T) {
	docs := memory.New()
	a := open(t, docs)
	p := project(t, a, "app")
	spec := KeySpec{Project: p.ID, Kind: Test, Name: "reader", Permissions: []Permission{Read}, Streams: []weir.StreamID{streamA}}
	scoped, scopedSecret := key(t, a, spec)
	revoked, revokedSecret := key(t, a, KeySpec{Project: p.ID})
	if _, err := a.Revoke(t.Context(), revoked.ID); err != nil {
		t.Fatal(err)
	}

	a = open(t, docs)
	if got, ok := a.ProjectNamed("app"); !ok || got != p {
		t.Errorf("project after a restart: %v, want %v", got, p)
	}
	g := caller(t, a, scopedSecret)
	if g.KeyID() != scoped.ID || g.Project() != p.ID || g.Allows(Publish, streamA) || !g.Allows(Read, streamA) || g.Allows(Read, streamB) {
		t.Errorf("the scope of %v did not survive a restart", g)
	}
	_, err := a.Authenticate([]string{"Bearer " + revokedSecret})
	want(t, "a revoked key after a restart", err, weir.KeyRevoked)
	if k, _ := a.Key(revoked.ID); k.RevokedAt == nil {
		t.Error("the record of a revoked key does not say so after a restart")
	}
}

// Two nodes on one store: what happens on one is known to the other after Refresh.
func TestRefresh(t *testing.T) {
	docs := memory.New()
	here, there := open(t, docs), open(t, docs)
	p := project(t, here, "shared")
	k, secret := key(t, here, KeySpec{Project: p.ID})

	_, err := there.Authenticate([]string{"Bearer " + secret})
	want(t, "before the refresh", err, weir.InvalidAPIKey)
	if err := there.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := caller(t, there, secret)
	if got, ok := there.Project(p.ID); !ok || got != p {
		t.Errorf("project %v on the other node, want %v", got, p)
	}
	if _, err := here.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if ended(g) {
		t.Error("ended before the refresh")
	}
	if err := there.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !ended(g) {
		t.Error("a revocation elsewhere does not end the grant")
	}
	_, err = there.Authenticate([]string{"Bearer " + secret})
	want(t, "after the refresh", err, weir.KeyRevoked)
}

// What one node made a moment ago can be used for administration on another at once.
func TestRefreshOnDemand(t *testing.T) {
	docs := memory.New()
	here, there := open(t, docs), open(t, docs)
	p := project(t, here, "shared")
	k, _ := key(t, there, KeySpec{Project: p.ID})
	if _, err := here.Revoke(t.Context(), k.ID); err != nil {
		t.Error(err)
	}
	_, err := there.CreateProject(t.Context(), "shared")
	want(t, "the name of a project made elsewhere", err, weir.InvalidRequest)
}

// A document that was read before a change and comes to memory after it changes nothing.
func TestOldRevisionsAreNotAdopted(t *testing.T) {
	docs := memory.New()
	a := open(t, docs)
	p := project(t, a, "app")
	k, secret := key(t, a, KeySpec{Project: p.ID})
	before, err := docs.Get(t.Context(), digestOf(secret).document())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := a.adoptKey(before); err != nil {
		t.Fatal(err)
	}
	if k, _ := a.Key(k.ID); k.RevokedAt == nil {
		t.Error("an old revision undid a revocation")
	}
	caller(t, a, DemoKey)
}

func TestRefreshForgets(t *testing.T) {
	docs := memory.New()
	a := open(t, docs)
	p := project(t, a, "app")
	k, secret := key(t, a, KeySpec{Project: p.ID})
	_, kept := key(t, a, KeySpec{Project: p.ID})
	g := caller(t, a, secret)
	if err := docs.Delete(t.Context(), digestOf(secret).document(), 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := a.Authenticate([]string{"Bearer " + secret})
	want(t, "a key whose document is gone", err, weir.InvalidAPIKey)
	if _, ok := a.Key(k.ID); ok || !ended(g) {
		t.Error("a key whose document is gone is still there")
	}
	caller(t, a, kept)
	caller(t, a, DemoKey)

	// Removed and imported again elsewhere, between two refreshes: another key, with another id.
	elsewhere := open(t, docs)
	g = caller(t, a, kept)
	if err := docs.Delete(t.Context(), digestOf(kept).document(), 0); err != nil {
		t.Fatal(err)
	}
	again, err := elsewhere.ImportKey(t.Context(), KeySpec{Project: p.ID, Permissions: []Permission{Read}}, kept)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := caller(t, a, kept); !ended(g) || h.KeyID() != again.ID || h.Allows(Manage, streamA) || len(a.Keys("")) != 1 {
		t.Error("the old key lives on in the new one")
	}
}

func ended(g *Grant) bool {
	select {
	case <-g.Ended():
		return true
	default:
		return false
	}
}
