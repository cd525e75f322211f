package jetstream

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/nodes"
)

// A node whose clock differs from those of the other nodes appends nothing and trims nothing, and
// uses the time of the others. It notices a jump of its own clock at once. It recovers when its
// clock is right.
func TestWrongClock(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	var ahead atomic.Int64
	o := Options{Name: "store", Shards: 1, Patience: time.Minute}
	right, other := node(t, s, o), node(t, s, o)
	o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	wrong := node(t, s, o)
	ahead.Store(int64(2 * time.Hour))
	for name, e := range map[string]*Engine{"right": right, "other": other, "wrong": wrong} {
		n, err := e.Nodes, e.Nodes.Join(nodes.Self{Name: name, Words: func() []byte { return nil }, Hear: func([]byte) {}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Leave)
	}
	for _, e := range []*Engine{right, wrong} { // with one other clock, no node could tell which of two is wrong
		awaitTrue(t, func() bool { return len(e.Nodes.Peers()) == 3 })
	}
	doc, err := right.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	judge := &follower{}
	l := attach(t, wrong, doc.Created, judge)

	for _, by := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		ahead.Store(0)
		awaitTrue(t, func() bool { return wrong.Status().State == engine.Ready && right.Status().State == engine.Ready })
		if err := l.Append(ctx, text("right")); err != nil {
			t.Fatal(err)
		}
		known := judge.seen
		ahead.Store(int64(by))
		if err := l.Append(ctx, text("wrong")); !errors.Is(err, engine.ErrClock) {
			t.Errorf("append while the clock is wrong by %v: %v, want ErrClock", by, err)
		}
		if err := l.Trim(ctx, 1, nil); !errors.Is(err, engine.ErrClock) {
			t.Errorf("trim while the clock is wrong by %v: %v, want ErrClock", by, err)
		}
		if judge.next != known {
			t.Error("the judge was asked although the clock is wrong")
		}
		if got := wrong.Status(); got.State != engine.Skewed || !errors.Is(got.Reason, engine.ErrClock) {
			t.Errorf("status %+v, want Skewed", got)
		}
		if off := time.Since(wrong.Nodes.Now().Round(0)).Abs(); off > time.Hour {
			t.Errorf("the node uses a time that is wrong by %v", off)
		}
		if got := wrong.Nodes.Ahead(); (got - by).Abs() > time.Hour {
			t.Errorf("the clock is %v ahead, want about %v", got, by)
		}
		if got := right.Status(); got.State != engine.Ready {
			t.Errorf("status of a node whose clock is right: %+v, want Ready", got)
		}
	}
}
