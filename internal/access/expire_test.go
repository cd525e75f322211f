package access

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/engine/memory"
)

// checkRefused authenticates a key that must be refused.
func checkRefused(t testing.TB, a *Access, what, secret string, c weir.Code) {
	t.Helper()
	_, err := a.Authenticate([]string{"Bearer " + secret})
	want(t, what, err, c)
}

// hasEnded reports whether a grant, which holds the rights of an authenticated caller, has ended.
func hasEnded(g *Grant) bool {
	select {
	case <-g.Ended():
		return true
	default:
		return false
	}
}

func TestKeyRevokesItself(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	p := project(t, a, "app")
	lasting, lastingSecret := key(t, a, KeySpec{Project: p.ID})
	k, secret := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 3600})
	if k.RevokedAt != nil || k.RevokeAt == nil || *k.RevokeAt != k.CreatedAt+3_600_000 {
		t.Fatalf("the new key has revoked_at %v and revoke_at %v, want nil and an hour after %v", k.RevokedAt, k.RevokeAt, k.CreatedAt)
	}
	subscriber, other := caller(t, a, secret), caller(t, a, lastingSecret)

	clock.advance(time.Hour - time.Millisecond)
	a.Expire()
	caller(t, a, secret)
	if hasEnded(subscriber) {
		t.Error("the grant ended before its time")
	}

	clock.advance(time.Millisecond)
	docs.calls.Store(0)
	a.Expire()
	if !hasEnded(subscriber) || hasEnded(other) {
		t.Errorf("after an hour the grants have ended: %v and %v, want true and false", hasEnded(subscriber), hasEnded(other))
	}
	if n := docs.calls.Load(); n != 0 {
		t.Errorf("Expire made %d calls to the store, want 0", n)
	}
	checkRefused(t, a, "after an hour", secret, weir.KeyRevoked)
	if k, _ = a.Key(k.ID); k.RevokedAt == nil || *k.RevokedAt != *k.RevokeAt {
		t.Errorf("revoked_at is %v, want %v", k.RevokedAt, *k.RevokeAt)
	}
	if l, _ := a.Key(lasting.ID); l.RevokedAt != nil || l.RevokeAt != nil {
		t.Errorf("the key without revoke_after has revoked_at %v and revoke_at %v, want nil for both", l.RevokedAt, l.RevokeAt)
	}
	checkRefused(t, open(t, docs, clock.set), "after a restart", secret, weir.KeyRevoked)
}

// Even if Expire is called late, a request with a key whose time has come is refused.
func TestKeyRevokesItselfOnUse(t *testing.T) {
	clock := newClock()
	a := open(t, store(), clock.set)
	_, secret := key(t, a, KeySpec{Project: project(t, a, "app").ID, RevokeAfter: 1})
	g := caller(t, a, secret)
	clock.advance(time.Second)
	checkRefused(t, a, "after a second", secret, weir.KeyRevoked)
	if !hasEnded(g) {
		t.Error("the grant has not ended")
	}
	a.Expire()
	checkRefused(t, a, "after Expire", secret, weir.KeyRevoked)
}

func TestRevokeAfterRange(t *testing.T) {
	a := open(t, store())
	p := project(t, a, "app")
	for _, n := range []int64{-1, MaxRevokeAfter + 1} {
		_, _, err := a.CreateKey(t.Context(), KeySpec{Project: p.ID, Kind: Live, RevokeAfter: n})
		want(t, "out of range", err, weir.InvalidRequest)
	}
	key(t, a, KeySpec{Project: p.ID, RevokeAfter: MaxRevokeAfter})
}

// A key revokes itself on every node that shares the store.
func TestKeyRevokesItselfOnEveryNode(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	p := project(t, a, "app")
	b := open(t, docs, clock.set)
	_, secret := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 60})
	g := caller(t, b, secret)
	clock.advance(time.Minute)
	b.Expire()
	if !hasEnded(g) {
		t.Error("the grant on the other node has not ended")
	}
	checkRefused(t, b, "on the other node", secret, weir.KeyRevoked)
}

// A wrong clock never gives a key a longer life. A key that is created while the clock is wrong
// lives as long as it should.
func TestRevokeAfterWithWrongClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		wrong := func() time.Time { return time.Now().Add(ahead) }
		a := open(t, store())
		a.SetClock(wrong)
		p := project(t, a, "app")
		_, before := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 3600})

		ahead = -24 * time.Hour // the clock is set back by a day
		time.Sleep(30 * time.Minute)
		_, during := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 3600})
		caller(t, a, before)
		time.Sleep(30 * time.Minute)
		a.Expire()
		checkRefused(t, a, "an hour after its creation, with the clock set back", before, weir.KeyRevoked)
		caller(t, a, during)

		ahead = 0 // the clock is set right
		a.Expire()
		caller(t, a, during)
		time.Sleep(30 * time.Minute)
		a.Expire()
		checkRefused(t, a, "an hour after its creation with a wrong clock", during, weir.KeyRevoked)

		ahead = 365 * 24 * time.Hour // the clock is set forward by a year, and then right again
		_, future := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 3600})
		caller(t, a, future)
		ahead = 0
		_, present := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 3600})
		time.Sleep(59 * time.Minute)
		caller(t, a, future)
		caller(t, a, present)
		time.Sleep(time.Minute)
		a.Expire()
		checkRefused(t, a, "created in the future", future, weir.KeyRevoked)
		checkRefused(t, a, "created after the clock was set right", present, weir.KeyRevoked)
	})
}

// A restart with a clock that was set back does not revive a key.
func TestRestartWithTheClockSetBack(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	p := project(t, a, "app")
	_, lasting := key(t, a, KeySpec{Project: p.ID})
	_, secret := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 60})
	clock.advance(2 * time.Minute)
	caller(t, a, lasting)
	if err := a.Close(t.Context()); err != nil { // stores the last use of the lasting key
		t.Fatal(err)
	}
	clock.advance(-time.Hour)
	checkRefused(t, open(t, docs, clock.set), "after the restart", secret, weir.KeyRevoked)
}

// A key that has revoked itself and is then revoked by a person or program stays revoked, even if
// the server starts again with a clock that was set back.
func TestRevokeAfterTheKeyRevokedItself(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	k, secret := key(t, a, KeySpec{Project: project(t, a, "app").ID, RevokeAfter: 60})
	clock.advance(2 * time.Minute)
	a.Expire()
	for range 2 {
		revoked, err := a.Revoke(t.Context(), k.ID)
		if err != nil || revoked.RevokedAt == nil || *revoked.RevokedAt != *k.RevokeAt {
			t.Errorf("the revoked key is %+v, %v; want it revoked at %v", revoked, err, *k.RevokeAt)
		}
	}
	clock.advance(-110 * time.Second)
	_, err := open(t, docs, clock.set).Authenticate([]string{"Bearer " + secret})
	want(t, "after a restart with the clock set back", err, weir.KeyRevoked)
}

// SetClock replaces a wrong clock before any key has revoked itself by that clock.
func TestSetClock(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	_, secret := key(t, a, KeySpec{Project: project(t, a, "app").ID, RevokeAfter: 60})
	b := open(t, docs, clock.set)
	b.SetClock(func() time.Time { return clock.now().Add(time.Hour) })
	b.SetClock(clock.now)
	b.Expire()
	g := caller(t, b, secret)
	clock.advance(time.Minute)
	b.Expire()
	if !hasEnded(g) {
		t.Error("the key has not revoked itself by the new clock")
	}
}

// A node whose own clock is ahead stores the last use of a key by the clock of the cluster. With its
// own clock, every node that starts later would take the stored time for the present, and refuse the
// keys that revoke themselves before that time.
func TestLastUseByTheClockOfTheCluster(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	p := project(t, a, "app")
	_, lasting := key(t, a, KeySpec{Project: p.ID})
	_, secret := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 3600})
	_, token, err := a.CreateToken(t.Context(), "backend")
	if err != nil {
		t.Fatal(err)
	}
	wrong := open(t, docs, func(o *Options) { o.Now = func() time.Time { return clock.now().Add(5 * time.Hour) } })
	wrong.SetClock(clock.now)
	caller(t, wrong, lasting)
	if _, err := wrong.AuthenticateToken([]string{"Bearer " + token.Reveal()}); err != nil {
		t.Fatal(err)
	}
	made := project(t, wrong, "later")
	if made.CreatedAt != p.CreatedAt {
		t.Errorf("the project was created at %v, want %v", made.CreatedAt, p.CreatedAt)
	}
	if err := wrong.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	restarted := open(t, docs, clock.set)
	restarted.SetClock(clock.now)
	caller(t, restarted, secret)
}

func TestForget(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	p := project(t, a, "app")
	_, valid := key(t, a, KeySpec{Project: p.ID})
	_, short := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 3600})
	byHand, byHandSecret := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 3600})
	token, tokenSecret := newToken(t, a)
	if _, err := a.Revoke(t.Context(), byHand.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := a.RevokeToken(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	pass := func(d time.Duration) {
		t.Helper()
		clock.advance(d)
		a.Expire()
		if err := a.Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pass(time.Hour)
	checkRefused(t, a, "revoked just now", short, weir.KeyRevoked)
	pass(keepExpired - time.Millisecond)
	checkRefused(t, a, "not forgotten yet", short, weir.KeyRevoked)
	docs.failure(engine.ErrFull)
	clock.advance(time.Millisecond)
	if err := a.Forget(t.Context()); !errors.Is(err, engine.ErrFull) {
		t.Errorf("Forget on a full store returned %v", err)
	}
	docs.failure(nil)
	checkRefused(t, a, "not forgotten because of an error", short, weir.KeyRevoked)
	pass(0)
	checkRefused(t, a, "forgotten", short, weir.InvalidAPIKey)
	checkRefused(t, a, "revoked by hand", byHandSecret, weir.KeyRevoked)
	pass(keepRevoked)
	checkRefused(t, a, "revoked by hand and forgotten", byHandSecret, weir.InvalidAPIKey)
	_, err := a.AuthenticateToken([]string{"Bearer " + tokenSecret})
	want(t, "token, forgotten", err, weir.InvalidAPIKey)
	caller(t, a, valid)
	if n := len(a.Keys("")) + len(a.Tokens()); n != 1 {
		t.Errorf("%d keys and tokens are left, want 1", n)
	}
	b := open(t, docs, clock.set)
	caller(t, b, valid)
	checkRefused(t, b, "forgotten, after a restart", short, weir.InvalidAPIKey)
}

// A project keeps the record of its last key, because a project without such a record counts as
// new.
func TestForgetKeepsTheLastKeyOfAProject(t *testing.T) {
	clock := newClock()
	a := open(t, store(), clock.set)
	p := project(t, a, "app")
	for range 3 {
		k, _ := key(t, a, KeySpec{Project: p.ID})
		if _, err := a.Revoke(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
		clock.advance(time.Second)
	}
	for range 2 {
		clock.advance(2 * keepRevoked)
		if err := a.Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(a.Keys(p.ID)); n != 1 {
			t.Errorf("the project has %d records of keys, want 1", n)
		}
	}
	key(t, a, KeySpec{Project: p.ID})
	clock.advance(keepExpired)
	if err := a.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := a.Keys(p.ID); len(keys) != 1 || keys[0].RevokedAt != nil {
		t.Errorf("the project has the keys %v, want only the valid one", keys)
	}
}

var keysPerDay = flag.Int("access.keys", 2880, "keys that TestShortLivedKeys creates per simulated day")

// All day long, a program creates keys that revoke themselves after an hour. Memory and store hold
// only the keys of the last hours, and in the end none.
func TestShortLivedKeys(t *testing.T) {
	run := func(t *testing.T, docs engine.Documents, report func(what string)) {
		clock := newClock()
		a := open(t, docs, clock.set)
		p := project(t, a, "app")
		key(t, a, KeySpec{Project: p.ID})
		report("before")
		perMinute := max(1, *keysPerDay/1440)
		held := perMinute * int((time.Hour+keepExpired)/time.Minute)
		step := func(n int) {
			t.Helper()
			var group sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(n))
			for range min(n, 64) {
				group.Go(func() {
					for left.Add(-1) >= 0 {
						if _, _, err := a.CreateKey(context.Background(), KeySpec{Project: p.ID, Kind: Live, RevokeAfter: 3600, Name: "of a browser"}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			clock.advance(time.Minute)
			a.Expire()
			if err := a.Forget(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for minute := range 24 * 60 {
			step(perMinute)
			if minute%360 == 359 {
				report("in between")
				if n := len(a.Keys("")) - 1; n > held+perMinute {
					t.Fatalf("%d keys are in memory after %d minutes, want at most %d", n, minute+1, held)
				}
			}
		}
		for range (time.Hour + keepExpired) / time.Minute {
			step(0)
		}
		report("after")
		if n := len(a.Keys("")); n != 1 || a.digests.Len() != 2 || len(a.ending)+len(a.ended) != 0 {
			t.Errorf("in memory: %d keys, %d digests, %d keys to revoke and %d to forget; want 1, 2, 0 and 0", n, a.digests.Len(), len(a.ending), len(a.ended))
		}
		left, err := docs.List(t.Context(), "", "", 10)
		if err != nil || len(left) != 2 {
			t.Errorf("the store holds %d documents (%v), want the project and one key", len(left), err)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc >> 10
	}
	t.Run("memory", func(t *testing.T) {
		run(t, memory.New(), func(what string) { t.Logf("%s: heap %d KiB", what, heap()) })
	})
	t.Run("journal", func(t *testing.T) {
		j, err := journal.Open(faulty.New(), journal.Options{SegmentSize: 256 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		run(t, j, func(what string) {
			s := j.Stats()
			t.Logf("%s: heap %d KiB, disk %d KiB, of that live %d KiB", what, heap(), s.Disk>>10, s.Live>>10)
		})
	})
}

// If very many keys are revoked, the oldest are forgotten early.
func TestManyRevokedKeys(t *testing.T) {
	clock := newClock()
	a := open(t, store(), clock.set)
	p := project(t, a, "app")
	key(t, a, KeySpec{Project: p.ID})
	a.mu.Lock()
	for range maxRevoked { // as if so many keys had been revoked; their documents do not matter here
		e := &entry{grant: &Grant{ended: make(chan struct{})}, at: weir.TimeOf(clock.now().Add(keepRevoked))}
		e.join(&a.ended)
	}
	a.mu.Unlock()
	k, secret := key(t, a, KeySpec{Project: p.ID, RevokeAfter: 1})
	clock.advance(time.Second)
	a.Expire()
	if err := a.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkRefused(t, a, "created less than two hours ago", secret, weir.KeyRevoked)
	clock.advance(keepExpired - time.Millisecond)
	if err := a.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.Key(k.ID); ok {
		t.Error("the key that would be forgotten next was not forgotten early")
	}
}
