package jetstream

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/nodes"
	"weir/internal/engine/jetstream/record"
)

// tags returns an entry that only the newest version of a message can hold.
func tags(s string) *engine.Entry {
	e := text(s)
	e.Tag = "a"
	return e
}

// join makes an engine announce itself until the returned function is called.
func join(t *testing.T, e *Engine, name string) (leave func()) {
	t.Helper()
	if err := e.Nodes.Join(nodes.Self{Name: name, Words: func() []byte { return nil }, Hear: func([]byte) {}}); err != nil {
		t.Fatal(err)
	}
	return e.Nodes.Leave
}

// Two nodes of different versions run side by side. The newer one writes nothing that the older one
// could not read: it refuses such an entry and stores the others of the same write. It writes the
// new version when the older node has been upgraded.
func TestTwoVersions(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	o := Options{Name: "store", Shards: 1, Patience: time.Minute}
	newer := node(t, s, o)
	o.reads = 3
	older := node(t, s, o)
	defer join(t, newer, "a")()
	leave := join(t, older, "b")
	awaitTrue(t, func() bool { return newer.common() == 3 })

	doc, err := newer.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	there := attach(t, older, doc.Created, &follower{})
	here := attach(t, newer, doc.Created, &follower{})
	outcomes := make(chan error, 3)
	seize(here) // so that the worker takes all three entries at once
	for _, e := range []*engine.Entry{text("one"), tags("refused"), text("two")} {
		here.Propose(e, func(err error) { outcomes <- err })
	}
	here.start(time.Now())
	refused := 0
	for range 3 {
		switch err := <-outcomes; {
		case errors.Is(err, engine.ErrOlder):
			refused++
		case err != nil:
			t.Error(err)
		}
	}
	if refused != 1 {
		t.Errorf("%d entries were refused because of the older node, want 1", refused)
	}
	if err := there.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if got := payloads(t, there); len(got) != 2 || got[0] != "one" || got[1] != "two" {
		t.Errorf("the older node reads %q", got)
	}

	// An engine beside that of the newer node, as a migration opens it, knows of the older node too.
	beside := node(t, s, Options{Name: "store", Shards: 1, Patience: time.Minute, Beside: newer})
	other, err := beside.Create(ctx, "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	copying, err := beside.Open(ctx, other.Created, struct{ engine.Judge }{&follower{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := copying.Append(ctx, tags("refused")); !errors.Is(err, engine.ErrOlder) {
		t.Errorf("append through an engine beside that of the newer node: %v, want ErrOlder", err)
	}

	leave()
	o.reads = record.Tagged
	defer join(t, node(t, s, o), "b")() // the upgraded node has the same name
	awaitTrue(t, func() bool { return newer.common() == record.Tagged })
	if err := here.Append(ctx, tags("three")); err != nil {
		t.Errorf("append after the upgrade: %v", err)
	}
}

// An older node meets a message of a newer version, because the newer node did not know of it. The
// older node says that the message is too new: at once, and not as if data were damaged. This holds
// for a log that it has open, and for one that it opens.
func TestTooNew(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	o := Options{Name: "store", Shards: 1, Patience: time.Hour} // an error that waits for Patience would never come
	newer := node(t, s, o)
	o.reads = 3
	older := node(t, s, o)
	doc, err := newer.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := older.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	there := attach(t, older, doc.Created, &follower{})
	here := attach(t, newer, doc.Created, &follower{})
	if err := here.Append(ctx, tags("new")); err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, engine.ErrTooNew) || errors.Is(err, engine.ErrDamaged) {
			t.Errorf("%s: %v, want ErrTooNew", what, err)
		}
	}
	check("append to an open log", there.Append(within, text("old")))
	check("catch up", there.CatchUp(within))
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = older.Open(within, doc.Created, &follower{})
	check("open", err)
}

// A store of a newer format is refused as too new.
func TestStoreTooNew(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	e := node(t, s, Options{Name: "store"})
	info, err := e.client.Stream(ctx, "KV_store-docs")
	if err != nil {
		t.Fatal(err)
	}
	c := info.Config
	c.Metadata["weir-format"] = "3"
	if err := e.client.Update(ctx, c); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, connect(t, s), Options{Name: "store"}); !errors.Is(err, engine.ErrTooNew) {
		t.Errorf("open a store of a newer format: %v, want ErrTooNew", err)
	}
}
