package dashboard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// refusing is a store that counts writes, and can refuse them.
type refusing struct {
	engine.Documents
	writes  atomic.Int32
	refuses atomic.Bool
}

func (s *refusing) write(what func() error) error {
	if s.refuses.Load() {
		return engine.ErrUnavailable
	}
	s.writes.Add(1)
	return what()
}

func (s *refusing) Create(ctx context.Context, key string, value []byte) (doc engine.Document, err error) {
	err = s.write(func() error { doc, err = s.Documents.Create(ctx, key, value); return err })
	return doc, err
}

func (s *refusing) Update(ctx context.Context, key string, value []byte, rev engine.Revision) (doc engine.Document, err error) {
	err = s.write(func() error { doc, err = s.Documents.Update(ctx, key, value, rev); return err })
	return doc, err
}

func (s *refusing) Delete(ctx context.Context, key string, rev engine.Revision) error {
	return s.write(func() error { return s.Documents.Delete(ctx, key, rev) })
}

// failing is a store whose writes fail with an error.
type failing struct {
	engine.Documents
	err error
}

func (s failing) Create(context.Context, string, []byte) (engine.Document, error) {
	return engine.Document{}, s.err
}

// MakePassword hides a password that a full store has refused, because it does not work. If the store
// fails in another way, the password may work, and MakePassword returns it.
func TestMakePasswordRefused(t *testing.T) {
	for err, shown := range map[error]bool{engine.ErrFull: false, engine.ErrReadOnly: true, engine.ErrUnavailable: true} {
		d := &Dashboard{Options: Options{Documents: failing{memory.New(), err}, Now: time.Now}}
		password, got := d.MakePassword(t.Context())
		if !errors.Is(got, err) || (password != "") != shown {
			t.Errorf("the store fails with %v: password %q and error %v", err, password, got)
		}
	}
}

// twoNodes are dashboards of two nodes that share a store and a clock.
type twoNodes struct {
	t           *testing.T
	docs        engine.Documents
	now         time.Time
	store       *refusing // the store as the node here sees it
	here, there *Dashboard
}

func newTwoNodes(t *testing.T) *twoNodes {
	docs := memory.New()
	n := &twoNodes{t: t, docs: docs, now: time.Now(), store: &refusing{Documents: docs}}
	n.here, n.there = following(t, n.store), following(t, docs)
	for _, d := range []*Dashboard{n.here, n.there} {
		d.sessions.now = func() time.Time { return n.now }
	}
	if _, err := n.there.setPassword(t.Context(), "correct horse", 0); err != nil {
		t.Fatal(err)
	}
	return n
}

// signIn begins a session on a node and returns its token.
func (n *twoNodes) signIn(d *Dashboard) (string, *session) {
	n.t.Helper()
	_, account := d.account.hash()
	token, e := d.admit(account, "192.0.2.1", "browser")
	if e == nil {
		n.t.Fatal("no session began")
	}
	d.sessions.store(n.t.Context(), e)
	return token, e
}

func (n *twoNodes) keep(d *Dashboard) {
	n.t.Helper()
	if err := d.sessions.keep(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// stored returns the number of stored sessions.
func (n *twoNodes) stored() int {
	n.t.Helper()
	docs, err := n.docs.List(n.t.Context(), SessionPrefix, "", 10*maxSessions)
	if err != nil {
		n.t.Fatal(err)
	}
	return len(docs)
}

// While the store is full, the use of a session is not stored, because that would use up the space
// that is reserved for revoking keys. A session that ends is still deleted.
func TestUseOfASessionOnAFullStore(t *testing.T) {
	n := newTwoNodes(t)
	token, e := n.signIn(n.here)
	n.here.sessions.writes = func() bool { return false }
	n.now = n.now.Add(2 * storeUseEvery)
	if n.here.sessions.of(token) == nil {
		t.Fatal("the session is not valid")
	}
	before := n.store.writes.Load()
	n.keep(n.here)
	if got := n.store.writes.Load(); got != before {
		t.Errorf("%d writes, want none", got-before)
	}
	e.end()
	if n.keep(n.here); n.stored() != 0 {
		t.Error("the document of the ended session is still stored")
	}
}

// A session that is used all the time is written when it begins and then every few minutes, not per
// request. These writes keep it alive on the other node, where no browser uses it. When it has expired,
// either node deletes its document.
func TestUseOfASessionIsStoredRarely(t *testing.T) {
	n := newTwoNodes(t)
	token, _ := n.signIn(n.here)
	const every = 10 * time.Second
	for used := time.Duration(0); used < 2*idleFor; used += every {
		n.now = n.now.Add(every)
		if n.here.sessions.of(token) == nil {
			t.Fatalf("the session ended after %v", used)
		}
		if used%time.Minute == 0 {
			n.keep(n.here)
			n.keep(n.there)
		}
	}
	if got, most := int(n.store.writes.Load()), int(1+2*idleFor/storeUseEvery); got < 2 || got > most {
		t.Errorf("a session in use was written %d times, want 2 to %d", got, most)
	}
	n.now = n.now.Add(idleFor - storeUseEvery - 2*time.Minute)
	if n.there.sessions.of(token) == nil {
		t.Error("the other node ended the session early")
	}
	n.now = n.now.Add(idleFor)
	if n.there.sessions.of(token) != nil || n.here.sessions.of(token) != nil {
		t.Error("the session outlived the idle timeout")
	}
	n.keep(n.there)
	if n.stored() != 0 || len(n.here.sessions.all) != 0 || len(n.there.sessions.all) != 0 {
		t.Errorf("an expired session is still stored (%d) or in memory (%d, %d)", n.stored(), len(n.here.sessions.all), len(n.there.sessions.all))
	}
}

// While the store refuses writes, a person can sign in and out on one node. The other node learns
// both when the store accepts writes again.
func TestSessionsWhileTheStoreRefusesWrites(t *testing.T) {
	n := newTwoNodes(t)
	old, oldSession := n.signIn(n.here)
	n.store.refuses.Store(true)
	fresh, _ := n.signIn(n.here)
	oldSession.end()
	n.here.sessions.spread(t.Context())
	if n.here.sessions.of(fresh) == nil || n.here.sessions.of(old) != nil {
		t.Error("signing in or out failed on the node while the store refuses writes")
	}
	if err := n.here.sessions.keep(t.Context()); !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("keep = %v", err)
	}
	if n.there.sessions.of(old) == nil { // a use on the other node must not revive the session on this one
		t.Error("the other node ended a session of which it could not know the end")
	}
	n.now = n.now.Add(storeUseEvery)
	n.there.sessions.of(old)
	n.keep(n.there)
	if n.here.sessions.of(old) != nil {
		t.Error("a use on the other node revived a session that had ended")
	}
	n.store.refuses.Store(false)
	n.keep(n.here)
	if n.there.sessions.of(fresh) == nil || n.there.sessions.of(old) != nil || n.stored() != 1 {
		t.Errorf("the other node did not learn who signed in and out; %d sessions are stored, want 1", n.stored())
	}
}

// A node that is cut off accepts sessions that began on it, and no others: it cannot know whether
// those have ended.
func TestSessionsOnANodeThatIsCutOff(t *testing.T) {
	n := newTwoNodes(t)
	here, _ := n.signIn(n.here)
	there, _ := n.signIn(n.there)
	n.here.sessions.lease = func() error { return engine.ErrUnavailable }
	if n.here.sessions.of(here) == nil || n.here.sessions.of(there) != nil {
		t.Error("a node that is cut off refused its own session, or accepted one of another node")
	}
	n.here.sessions.lease = func() error { return nil }
	e := n.here.sessions.of(there)
	if e == nil {
		t.Fatal("the session of the other node is not valid again")
	}
	if _, err := n.docs.Update(t.Context(), e.document(), []byte("{"), e.revision); err != nil {
		t.Fatal(err)
	}
	if n.here.sessions.of(there) != nil {
		t.Error("a session is valid though its document cannot be read")
	}
}

// Two nodes together keep a limited number of sessions. When the password changes, all of them end,
// their documents are deleted, and an unreadable document is deleted as well.
func TestNumberOfSessionsIsLimited(t *testing.T) {
	n := newTwoNodes(t)
	first, _ := n.signIn(n.here)
	for i := range maxSessions {
		n.now = n.now.Add(time.Second)
		n.signIn([]*Dashboard{n.here, n.there}[i%2])
	}
	n.keep(n.here)
	if got := n.stored(); got != maxSessions || n.there.sessions.of(first) != nil {
		t.Errorf("%d sessions are stored, want %d without the least recently used one", got, maxSessions)
	}
	if _, err := n.docs.Create(t.Context(), SessionPrefix+fmt.Sprintf("%064x", 7), []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.there.setPassword(t.Context(), "another horse", 0); err != nil {
		t.Fatal(err)
	}
	_, account := n.here.account.hash()
	if got := len(n.here.sessions.list(account)); got != 0 {
		t.Errorf("%d sessions outlived the password", got)
	}
	n.keep(n.here)
	if n.stored() != 0 || len(n.there.sessions.all) != 0 {
		t.Errorf("%d sessions are stored and %d in memory after the password changed, want none", n.stored(), len(n.there.sessions.all))
	}
}

// distant is a shared store that reports changes only when CatchUp is called.
type distant struct {
	engine.Engine
	unread []func()
}

func (s *distant) Shared() bool { return true }

func (s *distant) Watch(ctx context.Context, of engine.Prefixes, visit func(engine.Change)) error {
	return s.Engine.Watch(ctx, of, func(c engine.Change) { s.unread = append(s.unread, func() { visit(c) }) })
}

func (s *distant) CatchUp(context.Context) error {
	for _, report := range s.unread {
		report()
	}
	s.unread = nil
	return nil
}

// A request with the token of a session that began on another node a moment ago is accepted: the
// node catches up first.
func TestSessionOfAnotherNode(t *testing.T) {
	n := newTwoNodes(t)
	store := &distant{Engine: n.docs.(engine.Engine)}
	late := following(t, store)
	token, _ := n.signIn(n.here)
	if len(late.sessions.all) != 0 {
		t.Fatal("the store reported the session too early")
	}
	if late.sessions.of(token) == nil {
		t.Error("the node did not catch up")
	}
}
