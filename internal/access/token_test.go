package access

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/engine/memory"
)

func newToken(t testing.TB, a *Access) (Token, string) {
	t.Helper()
	token, secret, err := a.CreateToken(t.Context(), "backend")
	if err != nil {
		t.Fatal(err)
	}
	return token, secret.Reveal()
}

func TestTokens(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	token, secret := newToken(t, a)
	if !IsToken(secret) || IsKey(secret) || token.Name != "backend" || token.Masked != masked(secret) || token.LastUsedAt != nil {
		t.Errorf("created %+v with the secret %s", token, secret[:12])
	}
	clock.advance(time.Second)
	other, otherSecret := newToken(t, a)
	bearer := []string{"Bearer " + secret}
	g, err := a.AuthenticateToken(bearer)
	if err != nil || g.KeyID() != token.ID || g.Kind() != Management {
		t.Fatalf("authenticated as %v (%v), want token %s", g, err, token.ID)
	}
	if w := a.Take(g, netip.Addr{}); w.Limit != DefaultLimits.Live || w.Remaining != w.Limit-1 {
		t.Errorf("the window of a token is %+v, want the limit of a live key", w)
	}
	for _, action := range []Action{ReadStream, PublishBatch, DeleteStream, CreateStream, ListStreams} {
		if g.May(action, "0000000000000000000001", "") == nil {
			t.Errorf("a token may do action %d with a stream", action)
		}
	}
	if all := a.Tokens(); len(all) != 2 || all[0].ID != token.ID || all[1].ID != other.ID || all[0].LastUsedAt == nil || all[1].LastUsedAt != nil {
		t.Errorf("the tokens are %+v, want both, and only the first with a last use", all)
	}
	if keys := a.Keys(""); len(keys) != 0 {
		t.Errorf("the list of keys has %v, want none", keys)
	}

	if _, err := a.RevokeToken(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	_, err = a.RevokeToken(t.Context(), "none")
	want(t, "an unknown id", err, weir.NotFound)
	_, err = a.Revoke(t.Context(), other.ID)
	want(t, "the id of a token, revoked as a key", err, weir.NotFound)
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, a := range map[string]*Access{"running": a, "after a restart": open(t, docs, clock.set)} {
		_, err = a.AuthenticateToken(bearer)
		want(t, what+": revoked", err, weir.KeyRevoked)
		if _, err = a.AuthenticateToken([]string{"Bearer " + otherSecret}); err != nil {
			t.Errorf("%s: the other token was refused: %v", what, err)
		}
		if all := a.Tokens(); all[0].RevokedAt == nil || all[0].LastUsedAt == nil {
			t.Errorf("%s: the revoked token is %+v, want the times of its revocation and last use", what, all[0])
		}
	}
}

func TestTokenNames(t *testing.T) {
	a := open(t, memory.New())
	for _, name := range []string{"a\nb", strings.Repeat("x", weir.MaxName+1), "svc_mgmt_00112233445566778899aabbccddeeff"} {
		_, _, err := a.CreateToken(t.Context(), name)
		want(t, name[:3], err, weir.InvalidRequest)
	}
}

// A token is no key, and a key is no token.
func TestTokensAndKeysAreSeparate(t *testing.T) {
	a := open(t, memory.New())
	_, key := key(t, a, KeySpec{Project: project(t, a, "app").ID})
	_, token := newToken(t, a)
	checkRefused(t, a, "a token as a key", token, weir.InvalidAPIKey)
	for what, c := range map[string]struct {
		authorization []string
		code          weir.Code
	}{
		"nothing":          {nil, weir.MissingAPIKey},
		"empty":            {[]string{" "}, weir.MissingAPIKey},
		"two":              {[]string{"Bearer " + token, "Bearer " + token}, weir.InvalidAPIKey},
		"a key":            {[]string{"Bearer " + key}, weir.InvalidAPIKey},
		"the demo key":     {[]string{"Bearer " + DemoKey}, weir.InvalidAPIKey},
		"malformed":        {[]string{"Bearer " + token + "0"}, weir.InvalidAPIKey},
		"another scheme":   {[]string{"Basic " + token}, weir.InvalidAPIKey},
		"an unknown token": {[]string{"Bearer svc_mgmt_00112233445566778899aabbccddeeff"}, weir.InvalidAPIKey},
	} {
		_, err := a.AuthenticateToken(c.authorization)
		want(t, what, err, c.code)
	}
}

func TestTokensAreMasked(t *testing.T) {
	docs := memory.New()
	a := open(t, docs)
	token, secret := newToken(t, a)
	g, err := a.AuthenticateToken([]string{"Bearer " + secret})
	if err != nil {
		t.Fatal(err)
	}
	hides(t, "the grant and the record", fmt.Sprintf("%v %+v", g, token), secret)
	hides(t, "a message", Redacted("weir key revoke "+secret), secret)
	stored, err := docs.List(t.Context(), "", "", 10)
	if err != nil || len(stored) != 1 || !IsKeyDocument(stored[0].Key) || CheckDocument(stored[0]) != nil {
		t.Fatalf("the store holds %v (%v), want the document of the token", stored, err)
	}
	hides(t, "the document", stored[0].Key+string(stored[0].Value), secret)
	value, suspended, err := Suspend(stored[0], 7)
	if err != nil || value == nil || suspended.ID != token.ID {
		t.Errorf("Suspend returned %s, %v, %v, want the token revoked", value, suspended, err)
	}
}

func TestCreateKeyOnce(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	p := project(t, a, "app")
	_, token := newToken(t, a)
	_, other := newToken(t, a)
	spec := KeySpec{Project: p.ID, Kind: Live, Name: "browser", Permissions: []Permission{Read}, Streams: []weir.StreamID{"0000000000000000000001"}, RevokeAfter: 600}
	once := func(a *Access, s KeySpec, token, idempotencyKey string) (Key, string, bool) {
		t.Helper()
		k, secret, made, err := a.CreateKeyOnce(t.Context(), s, token, idempotencyKey)
		if err != nil {
			t.Fatal(err)
		}
		return k, secret.Reveal(), made
	}
	first, secret, made := once(a, spec, token, "one")
	if !made {
		t.Error("the first call made no key")
	}
	caller(t, a, secret)
	clock.advance(59 * time.Minute) // the next hour may have begun
	for what, a := range map[string]*Access{"this node": a, "another node": open(t, docs, clock.set)} {
		again, same, made := once(a, spec, token, "one")
		if made || again.ID != first.ID || same != secret {
			t.Errorf("%s: the repeated call returned made %v and key %s, want false and key %s", what, made, again.ID, first.ID)
		}
	}
	for what, change := range map[string]func(*KeySpec){
		"project": func(s *KeySpec) { s.Project = "x" }, "kind": func(s *KeySpec) { s.Kind = Test }, "name": func(s *KeySpec) { s.Name = "" },
		"permissions": func(s *KeySpec) { s.Permissions = nil }, "streams": func(s *KeySpec) { s.Streams = nil }, "time": func(s *KeySpec) { s.RevokeAfter = 0 },
	} {
		s := spec
		change(&s)
		_, _, _, err := a.CreateKeyOnce(t.Context(), s, token, "one")
		want(t, "another "+what, err, weir.InvalidRequest)
	}
	for what, different := range map[string][2]string{"idempotency key": {token, "two"}, "token": {other, "one"}} {
		if k, s, made := once(a, spec, different[0], different[1]); !made || k.ID == first.ID || s == secret {
			t.Errorf("with another %s, the call returned the same key", what)
		}
	}

	clock.advance(2 * time.Hour)
	a.Expire()
	if k, s, made := once(a, spec, token, "one"); !made || k.ID == first.ID || s == secret {
		t.Error("hours later, the same idempotency key returned the revoked key")
	}
	_, _, _, err := a.CreateKeyOnce(t.Context(), KeySpec{Project: p.ID}, token, "three")
	want(t, "no kind", err, weir.InvalidRequest)
	_, _, _, err = a.CreateKeyOnce(t.Context(), KeySpec{Project: "x", Kind: Live}, token, "three")
	want(t, "no project", err, weir.InvalidRequest)
}

// The clocks of two nodes may differ, and a clock may be set back. So the repeated call may come in
// the hour before the first one.
func TestCreateKeyOnceAtTheTurnOfTheHour(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	spec := KeySpec{Project: project(t, a, "app").ID, Kind: Live}
	_, token := newToken(t, a)
	first, _, _, err := a.CreateKeyOnce(t.Context(), spec, token, "one")
	if err != nil {
		t.Fatal(err)
	}
	clock.advance(-time.Second)
	again, _, made, err := open(t, docs, clock.set).CreateKeyOnce(t.Context(), spec, token, "one")
	if err != nil || made || again.ID != first.ID {
		t.Errorf("a node whose clock is behind returned made %v, key %s, error %v; want false and key %s", made, again.ID, err, first.ID)
	}
}

func TestCreateKeyOnceConcurrently(t *testing.T) {
	clock, docs := newClock(), store()
	nodes := []*Access{open(t, docs, clock.set), open(t, docs, clock.set)}
	p := project(t, nodes[0], "app")
	_, token := newToken(t, nodes[0])
	var group sync.WaitGroup
	var mu sync.Mutex
	ids, created := map[string]bool{}, 0
	for i := range 20 {
		group.Go(func() {
			k, _, made, err := nodes[i%2].CreateKeyOnce(t.Context(), KeySpec{Project: p.ID, Kind: Live}, token, "same")
			mu.Lock()
			defer mu.Unlock()
			if ids[k.ID] = true; made {
				created++
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(ids) != 1 || created != 1 {
		t.Errorf("20 calls returned %d keys and created %d, want 1", len(ids), created)
	}
}
