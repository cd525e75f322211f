package access

import (
	"testing"

	"weir"
)

// TestMay covers every action of every kind of caller on every kind of stream (D20, D22).
func TestMay(t *testing.T) {
	const streamC weir.StreamID = "cccccccccccccccccccccc" // belongs to another project
	actions := []Action{ReadStream, PublishBatch, DeleteStream, CreateStream}
	// The results of read, publish, delete and create, one letter each: y allowed, f forbidden,
	// m missing key, t taken.
	codes := map[byte]weir.Code{'y': "", 'f': weir.ProjectForbidden, 'm': weir.MissingAPIKey, 't': weir.StreamNameTaken}
	type answers struct{ a, b, c, demo, fresh, list string } // one field per stream; fresh is for creating without an id, list for listing
	type callers map[string]struct {
		spec *KeySpec // nil: a demo caller
		want answers
	}
	on := callers{
		"plain":              {&KeySpec{}, answers{"yyyy", "yyyy", "fffy", "yfft", "y", "y"}},
		"reader":             {&KeySpec{Permissions: []Permission{Read}}, answers{"yfff", "yfff", "ffff", "yfff", "f", "y"}},
		"publisher":          {&KeySpec{Permissions: []Permission{Publish}}, answers{"fyff", "fyff", "ffff", "yfff", "f", "f"}},
		"manager":            {&KeySpec{Permissions: []Permission{Manage}}, answers{"ffyy", "ffyy", "fffy", "yfft", "y", "f"}},
		"confined":           {&KeySpec{Streams: []weir.StreamID{streamA}}, answers{"yyyy", "ffff", "ffff", "yfft", "f", "y"}},
		"confined reader":    {&KeySpec{Streams: []weir.StreamID{streamB}, Permissions: []Permission{Read}}, answers{"ffff", "yfff", "ffff", "yfff", "f", "y"}},
		"confined elsewhere": {&KeySpec{Streams: []weir.StreamID{streamC}}, answers{"ffff", "ffff", "fffy", "yfft", "f", "y"}},
		"test":               {&KeySpec{Kind: Test}, answers{"yyyy", "yyyy", "fffy", "yfft", "y", "y"}},
		"demo key":           {nil, answers{"ffff", "ffff", "ffff", "yfff", "f", "y"}},
		"no key":             {nil, answers{"mmmm", "mmmm", "mmmm", "ymmm", "m", "m"}},
	}
	off := callers{
		"plain":    {&KeySpec{}, answers{"yyyy", "yyyy", "fffy", "ffft", "y", "y"}},
		"confined": {&KeySpec{Streams: []weir.StreamID{streamA}}, answers{"yyyy", "ffff", "ffff", "ffft", "f", "y"}},
	}
	for demo, cs := range map[bool]callers{true: on, false: off} {
		a := open(t, store(), func(o *Options) { o.Demo = demo })
		ours, theirs := project(t, a, "ours"), project(t, a, "theirs")
		for name, c := range cs {
			var g *Grant
			switch {
			case c.spec != nil:
				c.spec.Project = ours.ID
				_, secret := key(t, a, *c.spec)
				g = caller(t, a, secret)
			case name == "no key":
				g = a.DemoReader()
			default:
				g = caller(t, a, DemoKey)
			}
			for _, s := range []struct {
				id    weir.StreamID
				owner weir.ProjectID
				want  string
			}{
				{streamA, ours.ID, c.want.a}, {streamB, ours.ID, c.want.b},
				{streamC, theirs.ID, c.want.c}, {DemoStream, DemoProject, c.want.demo},
			} {
				for i, action := range actions {
					if err := g.May(action, s.id, s.owner); code(t, err) != codes[s.want[i]] {
						t.Errorf("demo %t: %s, action %d on %s: got %v, want %c", demo, name, action, s.id, err, s.want[i])
					}
				}
			}
			want(t, name+" creates without an id", g.May(CreateStream, "", g.Project()), codes[c.want.fresh[0]])
			want(t, name+" lists", g.May(ListStreams, "", g.Project()), codes[c.want.list[0]])
			if g.May(0, streamA, ours.ID) == nil || g.May(ListStreams+1, streamA, ours.ID) == nil {
				t.Errorf("%s may perform an invalid action", name)
			}
		}
	}
}

// Only the demo's own stream is public. A stream of another project is not, even if it has the same
// id.
func TestDemoStreamBelongsToTheDemoProject(t *testing.T) {
	a := open(t, store())
	ours, theirs := project(t, a, "ours"), project(t, a, "theirs")
	_, secret := key(t, a, KeySpec{Project: ours.ID})
	g := caller(t, a, secret)
	want(t, "a private stream under the demo's id", g.May(ReadStream, DemoStream, theirs.ID), weir.ProjectForbidden)
	want(t, "the same without a key", a.DemoReader().May(ReadStream, DemoStream, theirs.ID), weir.MissingAPIKey)
	want(t, "another stream of the demo's project", g.May(ReadStream, streamA, DemoProject), weir.ProjectForbidden)
	for _, action := range []Action{PublishBatch, DeleteStream} {
		want(t, "changing a stream under the demo's id", g.May(action, DemoStream, ours.ID), weir.ProjectForbidden)
	}
}

func TestAllows(t *testing.T) {
	a := open(t, store())
	p := project(t, a, "app")
	_, plain := key(t, a, KeySpec{Project: p.ID})
	_, scoped := key(t, a, KeySpec{Project: p.ID, Permissions: []Permission{Read, Publish}, Streams: []weir.StreamID{streamA}})
	for _, tc := range []struct {
		caller string
		g      *Grant
		p      Permission
		stream weir.StreamID
		want   bool
	}{
		{"plain", caller(t, a, plain), Read, streamA, true},
		{"plain", caller(t, a, plain), Publish, streamB, true},
		{"plain", caller(t, a, plain), Manage, streamB, true},
		{"plain", caller(t, a, plain), "write", streamB, false},
		{"scoped", caller(t, a, scoped), Read, streamA, true},
		{"scoped", caller(t, a, scoped), Publish, streamA, true},
		{"scoped", caller(t, a, scoped), Manage, streamA, false},
		{"scoped", caller(t, a, scoped), Read, streamB, false},
		{"scoped", caller(t, a, scoped), Read, "", false},
		{"demo key", caller(t, a, DemoKey), Read, DemoStream, true},
		{"demo key", caller(t, a, DemoKey), Publish, DemoStream, false},
		{"demo key", caller(t, a, DemoKey), Read, streamA, false},
		{"no key", a.DemoReader(), Read, DemoStream, true},
		{"no key", a.DemoReader(), Manage, DemoStream, false},
	} {
		if got := tc.g.Allows(tc.p, tc.stream); got != tc.want {
			t.Errorf("%s: %s on %q allowed: %t, want %t", tc.caller, tc.p, tc.stream, got, tc.want)
		}
	}
}

func TestGrantNames(t *testing.T) {
	a := open(t, store())
	p := project(t, a, "app")
	k, secret := key(t, a, KeySpec{Project: p.ID})
	for _, tc := range []struct {
		g       *Grant
		id      string
		project weir.ProjectID
		demo    bool
	}{
		{caller(t, a, secret), k.ID, p.ID, false},
		{caller(t, a, DemoKey), DemoKeyID, DemoProject, true},
		{a.DemoReader(), "", DemoProject, true},
	} {
		if tc.g.KeyID() != tc.id || tc.g.Project() != tc.project || tc.g.Demo() != tc.demo || ended(tc.g) {
			t.Errorf("got %v of project %q, demo %t; want key %q of %q, demo %t", tc.g, tc.g.Project(), tc.g.Demo(), tc.id, tc.project, tc.demo)
		}
	}
	if g, h := caller(t, a, secret), caller(t, a, secret); g != h {
		t.Error("a key has more than one grant")
	}
}

// A permission that only a later version knows allows nothing.
func TestUnknownPermissionAllowsNothing(t *testing.T) {
	g := newGrant(&Key{ID: "k", Project: "p", Permissions: []Permission{"admin"}}, true)
	for _, action := range []Action{ReadStream, PublishBatch, DeleteStream, CreateStream, ListStreams} {
		want(t, "an unknown permission", g.May(action, streamA, "p"), weir.ProjectForbidden)
	}
}
