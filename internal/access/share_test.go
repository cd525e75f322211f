package access

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// nodes opens Access on n nodes that share a store, and returns the grant of the same key on each.
func nodes(t *testing.T, n int, l Limits) ([]*Access, []*Grant) {
	t.Helper()
	docs := store()
	first := open(t, docs, limits(l))
	p := project(t, first, "app")
	_, secret := key(t, first, KeySpec{Project: p.ID})
	all, grants := []*Access{first}, []*Grant{caller(t, first, secret)}
	for range n - 1 {
		a := open(t, docs, limits(l))
		all, grants = append(all, a), append(grants, caller(t, a, secret))
	}
	for _, a := range all {
		a.Share()
	}
	return all, grants
}

// gossip reports the counts of every node to all others.
func gossip(all []*Access) {
	for i, a := range all {
		b := a.Tally()
		for j, other := range all {
			if i != j && b != nil {
				other.AddTally(b)
			}
		}
	}
}

// Three nodes that report their counts to each other allow about the limit in total, and not three
// times the limit. This holds for a key and for an address.
func TestSharedWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond)
		all, grants := nodes(t, 3, Limits{Live: 90, Anonymous: 60})
		allowed, anonymous := 0, 0
		for i := range 300 {
			if all[i%3].Take(grants[i%3], client).Allowed {
				allowed++
			}
			if all[i%3].Take(nil, client).Allowed {
				anonymous++
			}
			if i%10 == 9 {
				gossip(all)
			}
		}
		if allowed < 90 || allowed > 100 || anonymous < 60 || anonymous > 70 {
			t.Errorf("allowed %d requests for the key and %d for the address; want about 90 and 60", allowed, anonymous)
		}
		if w := all[1].Take(nil, netip.MustParseAddr("192.0.2.2")); !w.Allowed || w.Remaining != 59 {
			t.Errorf("the window of another address is %+v, want 59 remaining", w)
		}
		for i, a := range all {
			if w := a.Peek(grants[i], client); w.Remaining != 0 || w.Reset != all[0].Peek(grants[0], client).Reset {
				t.Errorf("the window on node %d is %+v, want none remaining, and the same end on all nodes", i, w)
			}
		}
		time.Sleep(time.Minute)
		gossip(all) // these counts belong to a window that has ended
		for i, a := range all {
			if w := a.Take(grants[i], client); !w.Allowed || w.Remaining != 89 {
				t.Errorf("the next window on node %d is %+v, want 89 remaining", i, w)
			}
		}
	})
}

// Reports that cannot be read, and counts of unknown callers, change nothing.
func TestInvalidTallyIsIgnored(t *testing.T) {
	all, grants := nodes(t, 1, Limits{Live: 5})
	a := all[0]
	for _, b := range []string{"", "{", `{"keys":{"unknown":{"begun":1,"n":5}}}`, `{"keys":{"` + grants[0].KeyID() + `":{"begun":1,"n":-7}}}`, `{"demo":{"zz":{"begun":1,"n":1}}}`} {
		a.AddTally([]byte(b))
	}
	if w := a.Take(grants[0], client); !w.Allowed || w.Remaining != 4 {
		t.Errorf("the window is %+v, want 4 remaining", w)
	}
	if b := a.Tally(); b == nil {
		t.Error("a request is missing from the report")
	}
	if b := a.Tally(); b != nil {
		t.Errorf("the same request was reported twice: %s", b)
	}
}
