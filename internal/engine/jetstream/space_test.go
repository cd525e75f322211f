package jetstream

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/jetstream/nodes"
)

// A store without space refuses entries and new documents, and its Status is Full. All other
// operations work, even after a restart. Space that was freed can be used again.
func TestFull(t *testing.T) {
	t.Parallel() // the test mostly waits
	s, err := embedded.Start(embedded.Options{Dir: quickDir(t), Most: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	e := open(t, s, "store")
	docs := map[string]engine.Document{}
	for _, key := range []string{"a", "b", "key"} {
		if docs[key], err = e.Create(ctx, key, nil); err != nil {
			t.Fatal(err)
		}
	}
	fill := func(l *log) {
		t.Helper()
		for i := 0; ; i++ {
			err := l.Append(ctx, text(strings.Repeat("x", 256<<10)))
			if errors.Is(err, engine.ErrFull) {
				return
			}
			if err != nil || i > 100 {
				t.Fatalf("append %d: %v", i, err)
			}
		}
	}
	judge := &follower{}
	a := attach(t, e, docs["a"].Created, judge)
	fill(a)
	if st := e.Status(); st.State != engine.Full || !errors.Is(st.Reason, engine.ErrFull) {
		t.Errorf("the status is %+v, want Full", st)
	}
	if _, err := e.Create(ctx, "new", nil); !errors.Is(err, engine.ErrFull) {
		t.Errorf("create: %v, want ErrFull", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, s, "store")
	defer e.Close()
	judge = &follower{}
	a = attach(t, e, docs["a"].Created, judge)
	if err := a.CatchUp(ctx); err != nil {
		t.Errorf("catch up: %v", err)
	}
	if _, err := e.Get(ctx, "a"); err != nil {
		t.Errorf("get: %v", err)
	}
	if _, err := e.Update(ctx, "key", []byte("revoked"), docs["key"].Revision); err != nil {
		t.Errorf("update: %v", err)
	}
	judge.low = judge.next
	if err := a.Trim(ctx, judge.low, nil); err != nil {
		t.Errorf("trim: %v", err)
	}
	awaitReady(t, e)
	b := attach(t, e, docs["b"].Created, &follower{})
	fill(b)
	if err := e.Delete(ctx, "b", 0); err != nil {
		t.Errorf("delete: %v", err)
	}
	awaitReady(t, e)
	if err := a.Append(ctx, text("continues")); err != nil {
		t.Errorf("append: %v", err)
	}
}

// If the server of one node is full, all nodes refuse entries, because this server stores their
// writes too.
func TestFullElsewhere(t *testing.T) {
	t.Parallel() // the test mostly waits
	s := server(t, quickDir(t))
	defer s.Stop()
	var full atomic.Bool
	other, err := Open(ctx, connect(t, s), Options{Name: "store", Shards: 2, Room: func() (int64, int64) {
		if full.Load() {
			return 100, 100
		}
		return 0, 100
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	e := open(t, s, "store")
	defer e.Close()
	full.Store(true)
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for e.Status().State != engine.Full {
		if e.client.Pause(within, nodes.MeasureEvery/10) != nil {
			t.Fatal("the node did not learn that the server of the other node is full")
		}
	}
	if _, err := e.Create(ctx, "a", nil); !errors.Is(err, engine.ErrFull) {
		t.Errorf("create: %v, want ErrFull", err)
	}
	full.Store(false)
	awaitReady(t, e)
}

// awaitReady waits until there is space again.
func awaitReady(t *testing.T, e *Engine) {
	t.Helper()
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for e.Status().State != engine.Ready {
		if e.client.Pause(within, nodes.MeasureEvery/10) != nil {
			t.Fatalf("the status is %+v, want Ready", e.Status())
		}
	}
}

// CatchUp normally stores a fence, which is an empty message. A server over its limit accepts no
// fence. CatchUp works without it.
func TestCatchUpWithoutSpace(t *testing.T) {
	s, err := embedded.Start(embedded.Options{Dir: quickDir(t), Most: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	// The option Room is not set, so the engine learns of the limit only when a server refuses a
	// write.
	e, err := Open(ctx, connect(t, s), Options{Shards: 1, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l := attach(t, e, doc.Created, &follower{})
	for err = nil; err == nil; {
		err = l.Append(ctx, text(strings.Repeat("x", 256<<10)))
	}
	if !errors.Is(err, engine.ErrFull) || e.Status().State != engine.Full {
		t.Fatalf("append: %v; the status is %+v; want ErrFull and Full", err, e.Status())
	}
	if err := errors.Join(l.CatchUp(ctx), e.CatchUp(ctx)); err != nil {
		t.Errorf("catch up: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	attach(t, e, doc.Created, &follower{})
}
