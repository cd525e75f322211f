package jetstream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/nodes"
	"weir/internal/engine/jetstream/wire"
)

// The watcher of every node receives every change, in order. After CatchUp it has received all
// acknowledged changes.
func TestWatch(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	a, b := open(t, s, "store"), open(t, s, "store")
	defer a.Close()
	defer b.Close()
	var mu sync.Mutex
	var told []string
	err := b.Watch(ctx, engine.Everything, func(c engine.Change) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(c.Key, " ", string(c.Value), " ", c.Deleted))
	})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := a.Create(ctx, "key", []byte("one"))
	for _, next := range []func() error{
		func() error { doc, err = a.Update(ctx, "key", []byte("two"), doc.Revision); return err },
		func() error { return a.Delete(ctx, "key", doc.Revision) },
		func() error { _, err := b.Create(ctx, "own", []byte("three")); return err },
	} {
		if err == nil {
			err = b.CatchUp(ctx) // without it, the watcher may get only the last of several changes of a document
		}
		if err == nil {
			err = next()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	got := fmt.Sprint(told)
	mu.Unlock()
	if want := "[key one false key two false key  true own three false]"; got != want {
		t.Errorf("watcher got %s, want %s", got, want)
	}
	for i := range 50 {
		if _, err := a.Create(ctx, fmt.Sprint("more ", i), nil); err != nil {
			t.Fatal(err)
		}
		if err := b.CatchUp(ctx); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		n := len(told)
		mu.Unlock()
		if n != 5+i {
			t.Fatalf("after CatchUp the watcher had %d changes, want %d", n, 5+i)
		}
	}
}

// A line is an ordered subscription of the engine to a shard. If a server loses the consumer that
// the line reads from, the line creates another one and misses no message.
func TestConsumerLost(t *testing.T) {
	t.Parallel() // the test mostly waits
	s := server(t, quickDir(t))
	defer s.Stop()
	a, b := open(t, s, "store"), open(t, s, "store")
	defer a.Close()
	defer b.Close()
	doc, err := a.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	here, judge := attach(t, a, doc.Created, &follower{}), &follower{}
	there := attach(t, b, doc.Created, judge)
	js := manager(t, s)
	for i := range 3 {
		stream, err := js.Stream(ctx, here.shard.Stream)
		if err != nil {
			t.Fatal(err)
		}
		for name := range stream.ConsumerNames(ctx).Name() {
			if err := js.DeleteConsumer(ctx, here.shard.Stream, name); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			if err := here.Append(ctx, text("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := there.CatchUp(ctx); err != nil {
			t.Fatal(err)
		}
		judge.mu.Lock()
		seen := judge.seen
		judge.mu.Unlock()
		if want := 5 * (i + 1); int(seen) != want {
			t.Fatalf("the other process knows %d entries, want %d", seen, want)
		}
	}
}

// Nodes learn of each other, exchange data and describe themselves. The method First returns true
// on exactly one of them. A node that left is remembered as gone.
func TestNodes(t *testing.T) {
	t.Parallel() // the test mostly waits
	s := server(t, quickDir(t))
	defer s.Stop()
	a, b := open(t, s, "store"), open(t, s, "store")
	defer a.Close()
	defer b.Close()
	words, heard := make(chan []byte, 1), make(chan string, 1)
	say := func() []byte {
		select {
		case w := <-words:
			return w
		default:
			return nil
		}
	}
	one, err := a.Nodes, a.Nodes.Join(nodes.Self{Name: "one", Words: say, Hear: func([]byte) {}, About: func() string { return "the first" }})
	if err != nil {
		t.Fatal(err)
	}
	leave := sync.OnceFunc(one.Leave)
	defer leave()
	two, err := b.Nodes, b.Nodes.Join(nodes.Self{Name: "two", Words: func() []byte { return nil }, Hear: func(b []byte) { heard <- string(b) }})
	if err != nil {
		t.Fatal(err)
	}
	defer two.Leave()
	words <- []byte("hello")
	if got := <-heard; got != "hello" {
		t.Errorf("heard %q, want hello", got)
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !one.First() || two.First() || len(one.Names()) != 2 {
		if (&wire.Client{}).Pause(within, 10*time.Millisecond) != nil {
			t.Fatalf("First is %v on node one and %v on node two, and node one hears %v; want true, false and both nodes", one.First(), two.First(), one.Names())
		}
	}
	peers := func(want string) {
		t.Helper()
		for {
			var got []string
			for _, p := range two.Peers() {
				got = append(got, fmt.Sprint(p.Name, " ", p.Gone, " ", p.About, " ", p.Ahead.Abs() < time.Minute))
			}
			if strings.Join(got, ", ") == want {
				return
			}
			if (&wire.Client{}).Pause(within, 10*time.Millisecond) != nil {
				t.Fatalf("node two knows %q, want %s", got, want)
			}
		}
	}
	peers("one false the first true, two false  true")
	leave()
	peers("one true the first true, two false  true")
}

// Open waits for other nodes until its context ends, even if that is longer than Patience.
func TestOpenWaits(t *testing.T) {
	t.Parallel()
	s := server(t, quickDir(t))
	defer s.Stop()
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// The test sets Patience to a nanosecond, in which no server answers.
	if _, err := Open(within, connect(t, s), Options{Name: "store", Shards: 2, Patience: time.Nanosecond}); err == nil || within.Err() == nil {
		t.Errorf("open returned before its context ended: %v", err)
	}
}
