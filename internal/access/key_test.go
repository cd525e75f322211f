package access

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

const (
	streamA weir.StreamID = "aaaaaaaaaaaaaaaaaaaaaa"
	streamB weir.StreamID = "bbbbbbbbbbbbbbbbbbbbbb"
	given                 = "svc_live_deadbeefdeadbeefdeadbeefdeadbeef"
)

func TestKeySpecs(t *testing.T) {
	a := open(t, store())
	p := project(t, a, "app")
	for _, tc := range []struct {
		what string
		spec KeySpec
		code weir.Code
	}{
		{"live", KeySpec{Project: p.ID, Kind: Live}, ""},
		{"test, named", KeySpec{Project: p.ID, Kind: Test, Name: strings.Repeat("é", 128)}, ""},
		{"scoped", KeySpec{Project: p.ID, Kind: Live, Permissions: []Permission{Manage, Read, Read}, Streams: []weir.StreamID{streamB, streamA, streamB}}, ""},
		{"the maximum number of streams", KeySpec{Project: p.ID, Kind: Live, Streams: slices.Repeat([]weir.StreamID{streamA}, maxStreams)}, ""},
		{"no kind", KeySpec{Project: p.ID}, weir.InvalidRequest},
		{"another kind", KeySpec{Project: p.ID, Kind: "prod"}, weir.InvalidRequest},
		{"no project", KeySpec{Kind: Live}, weir.InvalidRequest},
		{"unknown project", KeySpec{Project: "x", Kind: Live}, weir.InvalidRequest},
		{"the demo's project", KeySpec{Project: DemoProject, Kind: Live}, weir.InvalidRequest},
		{"long name", KeySpec{Project: p.ID, Kind: Live, Name: strings.Repeat("é", 129)}, weir.InvalidRequest},
		{"a key as name", KeySpec{Project: p.ID, Kind: Live, Name: "was " + given}, weir.InvalidRequest},
		{"unknown permission", KeySpec{Project: p.ID, Kind: Live, Permissions: []Permission{Read, "write"}}, weir.InvalidRequest},
		{"bad stream id", KeySpec{Project: p.ID, Kind: Live, Streams: []weir.StreamID{streamA, "b"}}, weir.InvalidRequest},
		{"too many streams", KeySpec{Project: p.ID, Kind: Live, Streams: slices.Repeat([]weir.StreamID{streamA}, maxStreams+1)}, weir.InvalidRequest},
	} {
		k, secret, err := a.CreateKey(t.Context(), tc.spec)
		want(t, tc.what, err, tc.code)
		if err != nil {
			continue
		}
		kind, ok := kindOf(secret.Reveal())
		if !ok || kind != tc.spec.Kind || k.Kind != kind || !weir.IsID(k.ID) || k.Project != p.ID || k.Name != tc.spec.Name {
			t.Errorf("%s: created %+v with %v", tc.what, k, secret)
		}
		if k.CreatedAt == 0 || k.LastUsedAt != nil || k.RevokedAt != nil {
			t.Errorf("%s: wrong times in %+v", tc.what, k)
		}
		if again, ok := a.Key(k.ID); !ok || again.Masked != k.Masked {
			t.Errorf("%s: Key returned %+v", tc.what, again)
		}
	}
	scoped := a.Keys(p.ID)[slices.IndexFunc(a.Keys(p.ID), func(k Key) bool { return len(k.Permissions) == 2 })]
	if !slices.Equal(scoped.Permissions, []Permission{Read, Manage}) || !slices.Equal(scoped.Streams, []weir.StreamID{streamA, streamB}) {
		t.Errorf("stored permissions %v and streams %v; want both sorted and without duplicates", scoped.Permissions, scoped.Streams)
	}
}

// TestKeyRecord compares the record of D21 member by member, after every change and after a
// restart.
func TestKeyRecord(t *testing.T) {
	clock := newClock()
	docs := memory.New()
	a := open(t, docs, clock.set)
	p := project(t, a, "app")
	k, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID, Name: "ci"}, given)
	if err != nil {
		t.Fatal(err)
	}
	members := `{"id":"` + k.ID + `","project":"` + string(p.ID) + `","kind":"live","name":"ci","masked":"svc_live_dea...beef",` +
		`"permissions":["read","publish","manage"],"streams":[],"created_at":"2026-11-15T00:00:00.000Z",`
	check := func(what string, times string) {
		t.Helper()
		k, _ := a.Key(k.ID)
		if got, err := json.Marshal(k); err != nil || string(got) != members+times {
			t.Errorf("%s: %s (%v), want %s", what, got, err, members+times)
		}
	}
	check("created", `"last_used_at":null,"revoked_at":null}`)
	clock.advance(time.Second)
	caller(t, a, given)
	check("used", `"last_used_at":"2026-11-15T00:00:01.000Z","revoked_at":null}`)
	clock.advance(time.Second)
	if _, err := a.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	check("revoked", `"last_used_at":"2026-11-15T00:00:01.000Z","revoked_at":"2026-11-15T00:00:02.000Z"}`)
	a = open(t, docs, clock.set)
	check("after a restart", `"last_used_at":"2026-11-15T00:00:01.000Z","revoked_at":"2026-11-15T00:00:02.000Z"}`)
}

func TestKeysAreListed(t *testing.T) {
	clock := newClock()
	a := open(t, store(), clock.set)
	p, q := project(t, a, "p"), project(t, a, "q")
	if list := a.Keys(""); list == nil || len(list) != 0 {
		t.Errorf("without keys, the list is %v; want an empty one", list)
	}
	var made []string
	for _, owner := range []weir.ProjectID{p.ID, q.ID, p.ID} {
		k, _ := key(t, a, KeySpec{Project: owner})
		made = append(made, k.ID)
		clock.advance(time.Second)
	}
	if _, err := a.Revoke(t.Context(), made[0]); err != nil {
		t.Fatal(err)
	}
	for owner, ids := range map[weir.ProjectID][]string{"": made, p.ID: {made[0], made[2]}, q.ID: {made[1]}, DemoProject: nil} {
		var listed []string
		for _, k := range a.Keys(owner) {
			listed = append(listed, k.ID)
		}
		if !slices.Equal(listed, ids) {
			t.Errorf("keys of %q: %v, want %v", owner, listed, ids)
		}
	}
}

func TestImport(t *testing.T) {
	docs := memory.New()
	a := open(t, docs)
	p, q := project(t, a, "p"), project(t, a, "q")
	first, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID, Permissions: []Permission{Read}}, given)
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID}, given)
	if err != nil || again.ID != first.ID || len(again.Permissions) != 1 || len(a.Keys("")) != 1 {
		t.Errorf("the second import returned %+v (%v), want the record of the first", again, err)
	}
	caller(t, a, given)
	k, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID, Kind: Live}, "svc_test_00000000000000000000000000000001")
	if err != nil || k.Kind != Test {
		t.Errorf("the kind must come from the prefix of the key: %+v (%v)", k, err)
	}
	for what, secret := range map[string]string{
		"the demo key": DemoKey, "no key": "", "short": given[:40], "long": given + "0", "upper case": strings.ToUpper(given),
	} {
		_, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID}, secret)
		want(t, what, err, weir.InvalidRequest)
	}
	_, err = a.ImportKey(t.Context(), KeySpec{Project: q.ID}, given)
	want(t, "a key of another project", err, weir.InvalidRequest)

	if _, err := a.Revoke(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*Access{a, open(t, docs)} {
		if k, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID}, given); err != nil || k.RevokedAt == nil {
			t.Errorf("importing a revoked key returned %+v (%v), want a revoked key", k, err)
		}
		_, err = a.Authenticate([]string{"Bearer " + given})
		want(t, "a revoked key that was imported again", err, weir.KeyRevoked)
	}
}

// Nodes that start at the same time with the same list of keys agree on the records.
func TestConcurrentImport(t *testing.T) {
	docs := memory.New()
	var group sync.WaitGroup
	var ids sync.Map
	for range 16 {
		group.Go(func() {
			a := open(t, docs)
			p, err := a.EnsureProject(t.Context(), "default")
			if err != nil {
				t.Error(err)
			}
			k, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID}, given)
			if err != nil {
				t.Error(err)
			}
			ids.Store(k.ID, true)
		})
	}
	group.Wait()
	n := 0
	ids.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("one key has %d records, want 1", n)
	}
}

// A key that has a record can be imported while the store accepts no changes. Otherwise a server
// with bootstrap keys could not start on a full disk, where it must still read and delete.
func TestImportOnFullStore(t *testing.T) {
	docs := store()
	a := open(t, docs)
	p := project(t, a, "app")
	first, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID}, given)
	if err != nil {
		t.Fatal(err)
	}
	docs.failure(engine.ErrFull)
	again, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID}, given)
	if err != nil || again.ID != first.ID {
		t.Errorf("the second import returned key %q (%v), want %q", again.ID, err, first.ID)
	}
	_, err = a.ImportKey(t.Context(), KeySpec{Project: p.ID}, "svc_live_00000000000000000000000000000009")
	want(t, "a new key on a full store", err, weir.StorageUnavailable)
}

func TestRevoke(t *testing.T) {
	clock := newClock()
	docs := store()
	a := open(t, docs, clock.set)
	p := project(t, a, "app")
	k, secret := key(t, a, KeySpec{Project: p.ID})
	other, otherSecret := key(t, a, KeySpec{Project: p.ID})
	g := caller(t, a, secret)

	docs.failure(engine.ErrReadOnly)
	_, err := a.Revoke(t.Context(), k.ID)
	want(t, "revoke on a store that accepts no writes", err, weir.StorageUnavailable)
	if ended(g) {
		t.Error("the grant ended although the revocation was not stored")
	}
	caller(t, a, secret)
	docs.failure(nil)

	first, err := a.Revoke(t.Context(), k.ID)
	if err != nil || first.RevokedAt == nil || *first.RevokedAt != weir.TimeOf(clock.now()) {
		t.Fatalf("Revoke returned %+v (%v), want a key that is revoked now", first, err)
	}
	if !ended(g) {
		t.Error("the grant did not end")
	}
	_, err = a.Authenticate([]string{"Bearer " + secret})
	want(t, "a revoked key", err, weir.KeyRevoked)
	clock.advance(time.Hour)
	second, err := a.Revoke(t.Context(), k.ID)
	if err != nil || *second.RevokedAt != *first.RevokedAt {
		t.Errorf("the second call of Revoke returned %+v (%v), want the time of the first", second, err)
	}
	if h := caller(t, a, otherSecret); ended(h) || h.KeyID() != other.ID {
		t.Error("revoking one key also ended the grant of another key")
	}
	_, err = a.Revoke(t.Context(), "cccccccccccccccccccccc")
	want(t, "an unknown id", err, weir.NotFound)
	_, err = a.Revoke(t.Context(), DemoKeyID)
	want(t, "the demo key", err, weir.InvalidRequest)
	caller(t, a, DemoKey)

	if err := docs.Delete(t.Context(), digestOf(otherSecret).document(Live), 0); err != nil {
		t.Fatal(err)
	}
	_, err = a.Revoke(t.Context(), other.ID)
	want(t, "a key whose document was deleted", err, weir.NotFound)
	_, err = a.Authenticate([]string{"Bearer " + otherSecret})
	want(t, "authenticate a key whose document was deleted", err, weir.InvalidAPIKey)
}

// Two nodes record uses of a key and flush them concurrently, while one of the nodes revokes the
// key. The key stays revoked on both nodes and in the store.
func TestRevokeDuringConcurrentUse(t *testing.T) {
	docs := memory.New()
	nodes := []*Access{open(t, docs), open(t, docs)}
	p := project(t, nodes[0], "app")
	k, secret := key(t, nodes[0], KeySpec{Project: p.ID})
	grants := []*Grant{caller(t, nodes[0], secret), caller(t, nodes[1], secret)}
	stop := make(chan struct{})
	var group, busy sync.WaitGroup
	busy.Add(8)
	for i := range 8 {
		a := nodes[i%2]
		group.Go(func() {
			revoked := false
			for round := 0; ; round++ {
				if round == 10 {
					busy.Done()
				}
				_, err := a.Authenticate([]string{"Bearer " + secret})
				if err != nil {
					revoked = true
				} else if revoked {
					t.Error("a revoked key was accepted again")
				}
				select {
				case <-stop:
					return
				default:
				}
				if e := a.find(k.ID); e != nil {
					e.grant.use(e.grant.lastUsed() + 1)
				}
				if err := a.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	busy.Wait()
	if _, err := nodes[0].Revoke(t.Context(), k.ID); err != nil {
		t.Error(err)
	}
	<-grants[0].Ended()
	<-grants[1].Ended()
	close(stop)
	group.Wait()
	for _, a := range append(nodes, open(t, docs)) {
		_, err := a.Authenticate([]string{"Bearer " + secret})
		want(t, "after the last flush", err, weir.KeyRevoked)
	}
}
