package hub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/memory"
)

// movable is a clock that several nodes share, and that a test can set forward.
type movable struct{ ahead atomic.Int64 }

func (c *movable) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *movable) forward(d time.Duration) { c.ahead.Add(int64(d)) }

// beforeGet is an engine that calls a function once, before the next document is read.
type beforeGet struct {
	engine.Engine
	call func()
	once sync.Once
}

func (e *beforeGet) Get(ctx context.Context, key string) (engine.Document, error) {
	e.once.Do(e.call)
	return e.Engine.Get(ctx, key)
}

// expiring returns a stream with a time to live of 1,000 seconds on two nodes of a shared store, and
// the clock of both. Neither node leads, so only the test ends the lifetime of the stream.
func expiring(t *testing.T, server *embedded.Server) (here, there *Stream, clock *movable) {
	t.Helper()
	clock = new(movable)
	a, b := node(t, server, Options{Now: clock.now}), node(t, server, Options{Now: clock.now})
	for _, h := range []*Hub{a, b} {
		h.Lead(func() bool { return false })
	}
	here = made(t, a, func(s *Spec) { s.TTLSeconds = 1000 })
	return here, find(t, b, here.ID), clock
}

// A node that ends the lifetime of a stream has looked at the log for the last time. If another node
// then stores a batch, the stream lives on. Otherwise an acknowledged batch would be deleted at once.
func TestBatchBesideTheEndOfALifetime(t *testing.T) {
	here, there, clock := expiring(t, shared(t))
	publish(t, here, keyed(1))
	clock.forward(2000 * time.Second)
	// This node knows of a use that the other one cannot know of: for example, the answer of the
	// servers to the last batch was late.
	lifeOf(here).touch(here.hub.now())
	there.hub.engine = &beforeGet{Engine: there.hub.engine, call: func() { publish(t, here, keyed(2)) }}
	if _, err := there.hub.lapse(ctx, there.ID); err != nil {
		t.Fatal(err)
	}
	if err := there.hub.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Stream{"the node of the batch": here, "the other node": there} {
		if _, err := s.hub.Find(ctx, s.ID); err != nil {
			t.Errorf("after a batch was acknowledged, %s says: %v", name, err)
		}
		known(t, s, 2)
	}
}

// The entry that ends a log because the lifetime of its stream has ended is final on all nodes, even
// before the stream is deleted, and the stream does not count as closed.
func TestLifetimeEndsOnAllNodes(t *testing.T) {
	server := shared(t)
	here, there, clock := expiring(t, server)
	publish(t, here, keyed(1))
	sub, err := here.Subscribe(ctx, Oldest)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if _, err := sub.Next(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	clock.forward(2000 * time.Second)
	lifeOf(here).touch(here.hub.now()) // otherwise this node would not serve the stream any more
	if over, err := lifeOf(there).finish(ctx); err != nil || !over {
		t.Fatalf("the lifetime has ended: %v, %v", over, err)
	}
	if _, err := sub.Next(ctx, time.Minute); !errors.Is(err, ErrExpired) {
		t.Errorf("a subscription on the other node ended with %v, want ErrExpired", err)
	}
	page, err := here.Page(ctx, PageQuery{From: Oldest, Limit: 10})
	if !isNotFound(err) {
		t.Errorf("a page on the other node: %v, %v", page, err)
	}
	_, closed := here.Close(ctx)
	_, published := here.Publish(ctx, keyed(2))
	_, decided := here.Decide(ctx, keyed(1))
	_, _, bounds := here.Bounds(ctx)
	_, object := here.Object(ctx)
	_, batch := here.Batch(ctx, 1)
	_, subscribed := here.Subscribe(ctx, Oldest)
	_, repeated := here.Publish(ctx, keyed(1))
	for name, err := range map[string]error{
		"close": closed, "publish": published, "repeated publish": repeated, "decision": decided, "bounds": bounds, "stream object": object,
		"batch": batch, "subscription": subscribed,
	} {
		if !isNotFound(err) {
			t.Errorf("%s on the other node: %v, want StreamNotFound", name, err)
		}
	}
	// Another node continues if the first one stops before it has deleted the stream.
	third := node(t, server, Options{})
	third.Lead(func() bool { return false })
	s := third.catalog.lookup(here.ID)
	if err := lifeOf(s).lapse(ctx); err != nil { // according to the clock of this node, the lifetime has not ended
		t.Fatal(err)
	}
	if err := here.hub.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if n := here.hub.Count("p"); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// If a client deletes a stream with a time to live, subscribers on other nodes are told so, even if
// the stream has not been used for longer than its time to live.
func TestReasonOfADeletion(t *testing.T) {
	for _, expires := range []bool{false, true} {
		here, there, clock := expiring(t, shared(t))
		sub, err := here.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		clock.forward(1500 * time.Second)
		lifeOf(there).touch(there.hub.now())
		want, remove := ErrDeleted, there.Delete
		if expires {
			clock.forward(1500 * time.Second)
			want, remove = ErrExpired, lifeOf(there).lapse
		}
		if err := remove(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := sub.Next(ctx, time.Minute); !errors.Is(err, want) {
			t.Errorf("the subscription ended with %v, want %v", err, want)
		}
		sub.Close()
	}
}

// A stream with the id of an expired stream can be created on a node that has not heard of the
// expired one.
func TestCreateInPlaceOfAnUnknownExpiredStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := twoNodes{memory.New()}
		defer e.Close()
		var late atomic.Bool
		a, b := open(t, e, Options{}), open(t, &heardLate{deaf: deaf{e, &late}}, Options{})
		defer a.Close()
		defer b.Close()
		for _, h := range []*Hub{a, b} {
			h.Lead(func() bool { return false })
		}
		late.Store(true)
		s := made(t, a, func(s *Spec) { s.TTLSeconds = 10 })
		time.Sleep(time.Minute)
		if b.catalog.lookup(s.ID) != nil {
			t.Fatal("the second node knows the stream already")
		}
		if _, err := b.Create(ctx, Spec{ID: s.ID, Project: "p", Name: "n", RetentionSeconds: 3600, MaxBytes: 1 << 30, Mode: weir.Raw}); err != nil {
			t.Errorf("create in place of an expired stream: %v", err)
		}
	})
}

// heardLate is an engine whose watchers hear of a document only when it prevents a creation.
type heardLate struct {
	deaf
	watchers []func(engine.Change)
}

func (e *heardLate) Watch(ctx context.Context, of engine.Prefixes, visit func(engine.Change)) error {
	e.watchers = append(e.watchers, visit)
	return e.deaf.Watch(ctx, of, visit)
}

func (e *heardLate) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	doc, err := e.deaf.Create(ctx, key, value)
	if errors.Is(err, engine.ErrExists) {
		there, _ := e.Get(ctx, key)
		for _, visit := range e.watchers {
			visit(engine.Change{Document: there})
		}
		e.on.Store(false)
	}
	return doc, err
}

// storing is an engine that lets a test decide how long an update takes, and whether it fails.
type storing struct {
	engine.Engine
	begun chan chan error // receives a channel per update; the update waits for its outcome
}

func (e *storing) Update(ctx context.Context, key string, value []byte, rev engine.Revision) (engine.Document, error) {
	outcome := make(chan error)
	select {
	case e.begun <- outcome:
	case <-ctx.Done():
		return engine.Document{}, ctx.Err()
	}
	if err := <-outcome; err != nil {
		return engine.Document{}, err
	}
	return e.Engine.Update(ctx, key, value, rev)
}

// A stream that expires while its last use is being stored is deleted in the next round of the
// sweeper, whether the use was stored or not. It was deleted up to ten seconds later.
func TestStoringTheLastUseDelaysNoDeletion(t *testing.T) {
	for _, outcome := range []error{nil, engine.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			e := &storing{memory.New(), make(chan chan error)}
			defer e.Close()
			h := open(t, e, Options{})
			defer h.Close()
			s := made(t, h, func(s *Spec) { s.TTLSeconds = 12 })
			time.Sleep(6 * time.Second)
			publish(t, s, keyed(1)) // the sweeper stores this use soon
			store := <-e.begun
			time.Sleep(15 * time.Second) // the time to live ends meanwhile
			store <- outcome
			go func() {
				for store := range e.begun {
					store <- nil
				}
			}()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if h.catalog.lookup(s.ID) != nil {
				t.Errorf("the use was stored with the error %v: the stream has not been deleted", outcome)
			}
			h.Close()
			close(e.begun)
		})
	}
}

// A node that begins to lead deletes the expired streams at once, although it could not do so before.
func TestExpiredWhileNoNodeLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := twoNodes{memory.New()}
		defer e.Close()
		h := open(t, e, Options{})
		defer h.Close()
		var leads atomic.Bool
		h.Lead(leads.Load)
		s := made(t, h, func(s *Spec) { s.TTLSeconds = 10 })
		time.Sleep(20 * time.Second)
		leads.Store(true)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if h.catalog.lookup(s.ID) != nil {
			t.Error("the stream has not been deleted")
		}
	})
}

// A batch that fills a gap is a use of the stream too, for a node that opens the log later.
func TestLateBatchKeepsAStreamAlive(t *testing.T) {
	server := shared(t)
	here, there, clock := expiring(t, server)
	publish(t, here, at(5, "x"))
	clock.forward(900 * time.Second)
	publish(t, here, at(3, "x"))
	clock.forward(500 * time.Second) // the last use that is stored is older than the time to live and what endAfter adds
	if err := lifeOf(there).lapse(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := there.hub.Find(ctx, there.ID); err != nil {
		t.Errorf("500 seconds after the last batch: %v", err)
	}
}

// unreadable is an engine whose logs cannot be opened.
type unreadable struct{ engine.Engine }

func (unreadable) Shared() bool { return true }

func (unreadable) Open(context.Context, engine.LogID, engine.Judge) (engine.Log, error) {
	return nil, engine.ErrDamaged
}

// An expired stream is deleted even if its log is damaged.
func TestExpiredStreamThatCannotBeOpened(t *testing.T) {
	for name, limit := range map[string]func(*Spec, *Hub){
		"fixed end":    func(s *Spec, h *Hub) { s.ExpiresAt = h.now().Add(10 * time.Second) },
		"time to live": func(s *Spec, _ *Hub) { s.TTLSeconds = 10 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, unreadable{memory.New()}, Options{})
				defer h.Close()
				s := made(t, h, func(s *Spec) { limit(s, h) })
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if h.catalog.lookup(s.ID) != nil {
					t.Error("the stream has not been deleted")
				}
			})
		})
	}
}

// Once a stream has expired, it cannot be closed, looked at or browsed, even if its document still
// exists.
func TestExpiredStreamIsGoneForAll(t *testing.T) {
	here, there, clock := expiring(t, shared(t))
	publish(t, here, keyed(1))
	clock.forward(2000 * time.Second)
	lifeOf(here).touch(here.hub.now())
	if over, err := lifeOf(there).finish(ctx); err != nil || !over {
		t.Fatal(over, err)
	}
	if _, _, err := here.CloseBy(ctx, &Writer{Producer: "p"}); !isNotFound(err) {
		t.Errorf("close: %v", err)
	}
	if _, err := here.Look(ctx, 10, func(Mark) {}); !isNotFound(err) {
		t.Errorf("look: %v", err)
	}
	if _, err := Browse(ctx, here, Window{Below: 10, Limit: 1, Bytes: 100}, func(int) error { return nil }, func(*weir.Batch) {}); !isNotFound(err) {
		t.Errorf("browse: %v", err)
	}
}
