package access

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir"
	"weir/internal/engine"
)

func lastUse(t *testing.T, docs engine.Documents, id string) weir.Time {
	t.Helper()
	k, ok := open(t, docs).Key(id)
	if !ok {
		t.Fatalf("no key %s in the store", id)
	}
	if k.LastUsedAt == nil {
		return 0
	}
	return *k.LastUsedAt
}

func TestLastUse(t *testing.T) {
	clock, docs := newClock(), store()
	a := open(t, docs, clock.set)
	p := project(t, a, "app")
	k, secret := key(t, a, KeySpec{Project: p.ID})
	key(t, a, KeySpec{Project: p.ID}) // never used, so it is never written
	flush := func(what string, f func(context.Context) error, writes int64, stored weir.Time) {
		t.Helper()
		docs.writes.Store(0)
		if err := f(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := docs.writes.Load(); n != writes {
			t.Errorf("%s: %d writes, want %d", what, n, writes)
		}
		if got := lastUse(t, docs, k.ID); got != stored {
			t.Errorf("%s: the stored last use is %v, want %v", what, got, stored)
		}
	}
	flush("unused", a.Flush, 0, 0)

	docs.calls.Store(0)
	caller(t, a, secret)
	caller(t, a, DemoKey)
	if n := docs.calls.Load(); n != 0 {
		t.Errorf("authenticating made %d calls to the store, want 0", n)
	}
	first := weir.TimeOf(clock.now())
	flush("first use", a.Flush, 1, first)
	flush("nothing since", a.Flush, 0, first)

	clock.advance(30 * time.Second)
	caller(t, a, secret)
	second := weir.TimeOf(clock.now())
	if k, _ := a.Key(k.ID); *k.LastUsedAt != second {
		t.Errorf("the last use in memory is %v, want %v", *k.LastUsedAt, second)
	}
	flush("within the minute", a.Flush, 0, first)
	clock.advance(30 * time.Second)
	flush("a minute later", a.Flush, 1, second)

	clock.advance(time.Second)
	caller(t, a, secret)
	third := weir.TimeOf(clock.now())
	flush("at the end", a.Close, 1, third)

	clock.advance(-time.Hour)
	caller(t, a, secret)
	flush("a clock that stepped back", a.Close, 0, third)
	_, err := a.Authenticate([]string{"Bearer " + given})
	want(t, "unknown", err, weir.InvalidAPIKey)
}

// If another node has changed the record of a key, Flush stores the last use in the changed record.
// A revocation is kept. Of two uses, the later one is stored.
func TestFlushAfterAConflict(t *testing.T) {
	clock, docs := newClock(), store()
	here, there := open(t, docs, clock.set), open(t, docs, clock.set)
	p := project(t, here, "app")
	k, secret := key(t, here, KeySpec{Project: p.ID})
	g := caller(t, here, secret)
	clock.advance(time.Minute)
	caller(t, there, secret)
	if err := there.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := here.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := lastUse(t, docs, k.ID); got != weir.TimeOf(clock.now()) {
		t.Errorf("the stored last use is %v, want the later one", got)
	}
	if k, _ := here.Key(k.ID); *k.LastUsedAt != weir.TimeOf(clock.now()) {
		t.Errorf("the last use in memory is %v, want the later one of the other node", *k.LastUsedAt)
	}
	clock.advance(time.Minute)
	caller(t, here, secret)
	if _, err := there.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if err := here.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !ended(g) {
		t.Error("the other node's revocation did not end the grant")
	}
	_, err := open(t, docs).Authenticate([]string{"Bearer " + secret})
	want(t, "after the flush", err, weir.KeyRevoked)
	if got := lastUse(t, docs, k.ID); got != weir.TimeOf(clock.now()) {
		t.Errorf("the stored last use is %v, want the later one", got)
	}
}

func TestFlushFailure(t *testing.T) {
	docs := store()
	a := open(t, docs)
	p := project(t, a, "app")
	var secrets []string
	for range 3 * flushers {
		_, s := key(t, a, KeySpec{Project: p.ID})
		caller(t, a, s)
		secrets = append(secrets, s)
	}
	docs.failure(engine.ErrFull)
	if err := a.Flush(t.Context()); !errors.Is(err, engine.ErrFull) {
		t.Errorf("Flush on a full store: %v, want ErrFull", err)
	}
	docs.failure(nil)
	if err := docs.Delete(t.Context(), digestOf(secrets[0]).document(Live), 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	stored := 0
	for _, k := range open(t, docs).Keys("") {
		if k.LastUsedAt != nil {
			stored++
		}
	}
	if stored != len(secrets)-1 {
		t.Errorf("the last use of %d keys is stored, want %d", stored, len(secrets)-1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	caller(t, a, secrets[1]).use(weir.TimeOf(time.Now().Add(time.Hour)))
	if err := a.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close with an ended context: %v, want context.Canceled", err)
	}
}
