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

// counted is a store that counts its calls and can refuse writes.
type counted struct {
	engine.Documents
	calls  atomic.Int64
	writes atomic.Int64

	mu    sync.Mutex
	fault error // returned by writes
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

func (c *counted) Delete(ctx context.Context, key string, rev engine.Revision) error {
	if err := c.write(); err != nil {
		return err
	}
	return c.Documents.Delete(ctx, key, rev)
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

// open opens an Access on a store, with the demo on.
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

// caller authenticates a key and returns its grant.
func caller(t testing.TB, a *Access, secret string) *Grant {
	t.Helper()
	g, err := a.Authenticate([]string{"Bearer " + secret})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// code returns the code of an error that a caller may see, or "" if there is no error.
func code(t testing.TB, err error) weir.Code {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *weir.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not a *weir.Error", err)
	}
	if e.Message == "" {
		t.Errorf("the error %s has no message", e.Code)
	}
	return e.Code
}

func want(t testing.TB, what string, err error, c weir.Code) {
	t.Helper()
	if got := code(t, err); got != c {
		t.Errorf("%s: got %v, want code %q", what, err, c)
	}
}

// clock is a clock that tests set.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.at.Store(time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

// now yields to other goroutines between reading and returning the time, to provoke races.
func (c *clock) now() time.Time {
	at := c.at.Load()
	runtime.Gosched()
	return time.Unix(0, at)
}

func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }
func (c *clock) set(o *Options)          { o.Now = c.now }

func TestOpenRefusesUnreadableDocuments(t *testing.T) {
	for name, doc := range map[string][2]string{
		"a key that is not JSON":               {keyPrefix + digestHex("x"), "{"},
		"a key without a digest":               {keyPrefix + "abc", "{}"},
		"a key with a digest that is too long": {keyPrefix + digestHex("x") + "00", "{}"},
		"a key with a digest that is not hex":  {keyPrefix + "zz" + digestHex("x")[2:], "{}"},
		"a project that is not JSON":           {projectPrefix + "x", "nonsense"},
		"a project with an invalid time":       {projectPrefix + "x", `{"id":"x","created_at":"soon"}`},
	} {
		docs := memory.New()
		if _, err := docs.Create(t.Context(), doc[0], []byte(doc[1])); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), docs, Options{}); err == nil {
			t.Errorf("Open succeeded with %s", name)
		}
	}
	for _, n := range []int{-1, 1 << 31} {
		_, err := Open(t.Context(), memory.New(), Options{Limits: Limits{Test: n}})
		want(t, "a limit out of range", err, weir.InvalidRequest)
	}
	docs := memory.New()
	docs.Close()
	if _, err := Open(t.Context(), docs, Options{}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("Open on a closed store returned %v, want ErrClosed", err)
	}
}

func digestHex(s string) string { return digestOf(s).document(Live)[len(keyPrefix):] }

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
		t.Errorf("after a restart the project is %v, want %v", got, p)
	}
	g := caller(t, a, scopedSecret)
	if g.KeyID() != scoped.ID || g.Project() != p.ID || g.Allows(Publish, streamA) || !g.Allows(Read, streamA) || g.Allows(Read, streamB) {
		t.Errorf("after a restart %v has a different scope", g)
	}
	_, err := a.Authenticate([]string{"Bearer " + revokedSecret})
	want(t, "a revoked key after a restart", err, weir.KeyRevoked)
	if k, _ := a.Key(revoked.ID); k.RevokedAt == nil {
		t.Error("after a restart the record of a revoked key has no revocation time")
	}
}

// The memory of a node follows the shared store: it includes the changes that another node made.
func TestMemoryFollowsTheStore(t *testing.T) {
	docs := memory.New()
	here, there := open(t, docs), open(t, docs)
	p := project(t, here, "shared")
	k, secret := key(t, here, KeySpec{Project: p.ID})

	g := caller(t, there, secret)
	if got, ok := there.Project(p.ID); !ok || got != p {
		t.Errorf("the project on the other node is %v, want %v", got, p)
	}
	if _, err := here.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if !ended(g) {
		t.Error("a revocation on another node did not end the grant")
	}
	_, err := there.Authenticate([]string{"Bearer " + secret})
	want(t, "after the revocation", err, weir.KeyRevoked)
}

// A project or key that one node created can be used for administration on another node
// immediately.
func TestRefreshOnDemand(t *testing.T) {
	docs := memory.New()
	here, there := open(t, docs), open(t, docs)
	p := project(t, here, "shared")
	k, _ := key(t, there, KeySpec{Project: p.ID})
	if _, err := here.Revoke(t.Context(), k.ID); err != nil {
		t.Error(err)
	}
	_, err := there.CreateProject(t.Context(), "shared")
	want(t, "the name of another node's project", err, weir.InvalidRequest)
}

func TestDeletedKeysAreForgotten(t *testing.T) {
	docs := memory.New()
	a := open(t, docs)
	p := project(t, a, "app")
	k, secret := key(t, a, KeySpec{Project: p.ID})
	_, kept := key(t, a, KeySpec{Project: p.ID})
	g := caller(t, a, secret)
	if err := docs.Delete(t.Context(), digestOf(secret).document(Live), 0); err != nil {
		t.Fatal(err)
	}
	_, err := a.Authenticate([]string{"Bearer " + secret})
	want(t, "a key whose document was deleted", err, weir.InvalidAPIKey)
	if _, ok := a.Key(k.ID); ok || !ended(g) {
		t.Error("a key whose document was deleted is still known")
	}
	caller(t, a, kept)
	caller(t, a, DemoKey)

	// A key that was deleted and imported again is another key, with another id.
	elsewhere := open(t, docs)
	g = caller(t, a, kept)
	if err := docs.Delete(t.Context(), digestOf(kept).document(Live), 0); err != nil {
		t.Fatal(err)
	}
	again, err := elsewhere.ImportKey(t.Context(), KeySpec{Project: p.ID, Permissions: []Permission{Read}}, kept)
	if err != nil {
		t.Fatal(err)
	}
	if h := caller(t, a, kept); !ended(g) || h.KeyID() != again.ID || h.Allows(Manage, streamA) || len(a.Keys("")) != 1 {
		t.Error("the imported key has properties of the deleted key")
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
