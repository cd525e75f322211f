package access

import (
	"context"
	"testing"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/enginetest"
	"weir/internal/engine/journal"
)

// onJournal opens a journal on a disk in memory.
func onJournal(t *testing.T) engine.Engine {
	t.Helper()
	j, err := journal.Open(faulty.New(), journal.Options{SegmentSize: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// settled returns when the store has finished the writes of callers that gave up. The store handles
// writes in order, so settled makes one more write and waits for it.
func settled(t *testing.T, e engine.Engine) {
	t.Helper()
	if _, err := e.Create(t.Context(), "barrier/"+string(weir.NewStreamID()), nil); err != nil {
		t.Fatal(err)
	}
}

// checkMemory checks that the Access a has the same projects and keys in memory as the store. It
// opens another Access on the same store and compares the two.
func checkMemory(t *testing.T, a *Access, e engine.Engine) {
	t.Helper()
	settled(t, e)
	again := open(t, e)
	names := func(a *Access) (list []string) {
		for _, p := range a.Projects() {
			list = append(list, p.Name)
		}
		for _, k := range a.Keys("") {
			state := " is valid"
			if k.RevokedAt != nil {
				state = " is revoked"
			}
			list = append(list, k.Name+state)
		}
		return list
	}
	got, want := names(a), names(again)
	if len(got) != len(want) {
		t.Fatalf("in memory: %q, in the store: %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("in memory: %q, in the store: %q", got, want)
		}
	}
}

// Memory and store agree even if a caller gives up while its change to a project or key is being
// written (D33).
func TestCallerLeaves(t *testing.T) {
	e := onJournal(t)
	a := open(t, e)
	told := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: the change was stored, but the call returned an error, so the audit log would not record the change: %v", what, err)
		}
		checkMemory(t, a, e)
	}
	_, err := a.CreateProject(enginetest.Leaving(context.Background()), "left")
	told("create a project", err)
	p := project(t, a, "app")
	_, err = a.RenameProject(enginetest.Leaving(context.Background()), p.ID, "renamed")
	told("rename a project", err)
	_, _, err = a.CreateKey(enginetest.Leaving(context.Background()), KeySpec{Project: p.ID, Kind: Live, Name: "left"})
	told("create a key", err)
	k, secret := key(t, a, KeySpec{Project: p.ID, Name: "revoked"})
	g := caller(t, a, secret)
	_, err = a.Revoke(enginetest.Leaving(context.Background()), k.ID)
	told("revoke a key", err)
	if record, _ := a.Key(k.ID); record.RevokedAt == nil {
		t.Fatal("the key is not revoked in memory, although the store accepted the change")
	}
	_, err = a.Authenticate([]string{"Bearer " + secret})
	want(t, "a key that was revoked by a caller that has gone", err, weir.KeyRevoked)
	if !g.hasEnded() {
		t.Error("the grant of the revoked key has not ended")
	}
}
