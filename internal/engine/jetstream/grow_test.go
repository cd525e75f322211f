package jetstream

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/streams"
)

// fill creates documents until every shard for new logs has one of their logs, and appends an entry
// to each log.
func fill(t *testing.T, e *Engine, prefix string) (ids []engine.LogID) {
	t.Helper()
	used := map[*shard]bool{}
	for i := 0; len(used) < e.layout.Load().Count(); i++ {
		doc, err := e.Create(ctx, fmt.Sprint(prefix, i), nil)
		if err != nil {
			t.Fatal(err)
		}
		l := attach(t, e, doc.Created, &follower{})
		if err := l.Append(ctx, text(fmt.Sprint(prefix, doc.Created))); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		used[e.shard(doc.Created)] = true
		ids = append(ids, doc.Created)
	}
	return ids
}

// holds checks that an engine reads the entries that fill has appended.
func holds(t *testing.T, e *Engine, prefix string, ids []engine.LogID) {
	t.Helper()
	if err := e.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		l := attach(t, e, id, &follower{})
		if got, want := payloads(t, l), fmt.Sprint(prefix, id); len(got) != 1 || got[0] != want {
			t.Errorf("log %d holds %q, want %q", id, got, want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The number of shards grows twice while two nodes use the store. A log stays in the shard in which
// it was created, and later logs use all shards. Both nodes, and one that starts afterwards, find
// every log.
func TestGrow(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	o := Options{Name: "store", Shards: 2, Patience: time.Minute}
	a, b := node(t, s, o), node(t, s, o)
	ids := map[string][]engine.LogID{"two": fill(t, a, "two")}
	before := map[engine.LogID]string{}
	for _, id := range ids["two"] {
		before[id] = a.shard(id).Stream
	}
	if err := a.Grow(ctx, 3); err != nil {
		t.Fatal(err)
	}
	ids["three"] = fill(t, b, "three") // the other node learns of the growth before it learns of a log
	for _, n := range []int{5, 5} {
		if err := b.Grow(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Grow(ctx, 4); !errors.Is(err, streams.ErrShards) {
		t.Errorf("shrink: %v, want streams.ErrShards", err)
	}
	ids["five"] = fill(t, a, "five")
	for id, stream := range before {
		if got := b.shard(id).Stream; got != stream {
			t.Errorf("log %d moved from %s to %s", id, stream, got)
		}
	}
	c := node(t, s, Options{Name: "store", Patience: time.Minute})
	for prefix, of := range ids {
		for _, e := range []*Engine{a, b, c} {
			holds(t, e, prefix, of)
		}
	}
	if got := len(c.Copies.Stand(ctx).Streams); got != 6 {
		t.Errorf("the store has %d streams, want the documents and 5 shards", got)
	}
}

// A growth that was interrupted after it had created a shard has no effect, and can be repeated.
func TestGrowInterrupted(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	o := Options{Name: "store", Shards: 1, Patience: time.Minute}
	a := node(t, s, o)
	if err := a.streams.Extend(ctx, 1, 2); err != nil { // the node dies before it stores the number of shards
		t.Fatal(err)
	}
	b := node(t, s, o)
	ids := fill(t, b, "one")
	if err := b.Grow(ctx, 3); err != nil {
		t.Fatal(err)
	}
	holds(t, a, "one", ids)
	holds(t, b, "three", fill(t, a, "three"))
}

// Two nodes of different versions run side by side. The store does not grow while the older node,
// which would look for logs in the wrong shard, is there. After the growth the older program
// refuses the store at once.
func TestGrowTwoVersions(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	o := Options{Name: "store", Shards: 1, Patience: time.Minute}
	newer := node(t, s, o)
	o.format = 1
	older := node(t, s, o)
	defer join(t, newer, "a")()
	leave := join(t, older, "b")
	awaitTrue(t, func() bool { return newer.Nodes.Formats() == 1 })
	if err := newer.Grow(ctx, 2); !errors.Is(err, engine.ErrOlder) {
		t.Errorf("grow with an older node: %v, want ErrOlder", err)
	}
	node(t, s, o) // the older program opens a store that has not grown
	leave()
	o.format = streams.Grown
	defer join(t, node(t, s, o), "b")() // the upgraded node has the same name
	awaitTrue(t, func() bool { return newer.Nodes.Formats() == streams.Grown })
	if err := newer.Grow(ctx, 2); err != nil {
		t.Fatal(err)
	}
	o.format = 1
	if _, err := Open(ctx, connect(t, s), o); !errors.Is(err, engine.ErrTooNew) {
		t.Errorf("the older program opens a store that has grown: %v, want ErrTooNew", err)
	}
}
