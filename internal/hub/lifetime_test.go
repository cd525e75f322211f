package hub

import (
	"container/heap"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// A stream with a time to live is deleted when it has not been used for that time. Publishing,
// reading a batch and starting a subscription are uses; asking for the stream object is not. The
// uses survive a restart: the stream never expires too early, and at most an eighth of its time to
// live too late.
func TestTimeToLive(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, func(s *Spec) { s.TTLSeconds = 1000 })
		id := s.ID
		there := func(want bool) {
			t.Helper()
			if _, err := h.Stream(id); (err == nil) != want {
				t.Fatalf("at %v: %v; want the stream to exist: %v", h.now(), err, want)
			}
		}
		uses := []func(){
			func() { publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte("x")}}) },
			func() {
				if _, err := s.Batch(ctx, 1); err != nil {
					t.Error(err)
				}
			},
			func() {
				if page, err := s.Page(ctx, PageQuery{From: Oldest, Limit: 1, Bytes: 1}); err == nil {
					page.Close()
				}
			},
			func() {
				sub, err := s.Subscribe(ctx, Head)
				if err != nil {
					t.Fatal(err)
				}
				sub.Close()
			},
		}
		for _, use := range uses {
			time.Sleep(999 * time.Second)
			use()
		}
		time.Sleep(500 * time.Second)
		if o, err := s.Object(ctx); err != nil || o.TTLSeconds != 1000 {
			t.Errorf("the object is %+v, %v", o, err)
		}
		h.Close()
		h = open(t, e, Options{})
		there(true)
		s, _ = h.Stream(id)
		time.Sleep(450 * time.Second)
		there(true)
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := sub.Next(ctx, time.Hour)
			ended <- err
		}()
		time.Sleep(999 * time.Second)
		there(true)
		time.Sleep(time.Second)
		there(false)
		if err := <-ended; !errors.Is(err, ErrExpired) {
			t.Errorf("the subscription ended with %v, want ErrExpired", err)
		}
		sub.Close()
		s = made(t, h, func(s *Spec) { s.ID, s.TTLSeconds = id, 2 })
		time.Sleep(2 * time.Second)
		s = made(t, h, func(s *Spec) { s.ID, s.ExpiresAt = id, h.now().Add(10*time.Second) })
		time.Sleep(9 * time.Second)
		there(true)
		publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte("x")}})
		time.Sleep(time.Second)
		there(false)
		h.Close()
		h = open(t, e, Options{})
		there(false)
		time.Sleep(5 * time.Second)
		if n := h.Count("p"); n != 0 {
			t.Errorf("%d streams are left, want none", n)
		}
		h.Close()
	})
}

// After a restart the last use may be later than the document says, by up to an eighth of the time
// to live. So the stream lives that much longer, and no more.
func TestTimeToLiveAfterRestart(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, func(s *Spec) { s.TTLSeconds = 80_000 })
		time.Sleep(20_000 * time.Second)
		publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte("x")}})
		time.Sleep(5 * time.Second) // long enough for the hub to store this use in the document
		name := "renamed"
		if _, err := s.Change(ctx, Change{Name: &name}); err != nil { // the change must keep the last use in the document
			t.Fatal(err)
		}
		h.Close()
		h = open(t, e, Options{})
		time.Sleep(79_990 * time.Second)
		if _, err := h.Stream(s.ID); err != nil {
			t.Errorf("the stream expired too early: %v", err)
		}
		time.Sleep(10_015 * time.Second)
		if _, err := h.Stream(s.ID); err == nil {
			t.Error("the stream expired too late")
		}
		h.Close()
	})
}

// withoutOutlines is an engine that knows nothing about a log before it is opened. Its method
// Status reports the state that the field state holds. It counts the changes of documents.
type withoutOutlines struct {
	engine.Engine
	state   atomic.Uint32 // an engine.State
	updates atomic.Int64
}

func (e *withoutOutlines) Outline(engine.LogID) (engine.Outline, bool) {
	return engine.Outline{}, false
}

func (e *withoutOutlines) Status() engine.Status {
	return engine.Status{State: engine.State(e.state.Load())}
}

func (e *withoutOutlines) Update(ctx context.Context, key string, value []byte, revision engine.Revision) (engine.Document, error) {
	e.updates.Add(1)
	return e.Engine.Update(ctx, key, value, revision)
}

// The first use after a long time counts even if the server stops right after it. Otherwise the
// stream would be deleted too early, and its data would be lost.
func TestUseBeforeACrashCounts(t *testing.T) {
	uses := map[string]func(s *Stream) error{
		"publish": func(s *Stream) error {
			_, err := s.Publish(ctx, &Publish{Batch: weir.Batch{Payload: []byte("x")}})
			return err
		},
		"batch": func(s *Stream) error { _, err := s.Batch(ctx, 1); return err },
		"page": func(s *Stream) error {
			p, err := s.Page(ctx, PageQuery{From: Oldest, Limit: 1, Bytes: 1})
			if err == nil {
				p.Close()
			}
			return err
		},
		"read": func(s *Stream) error {
			_, err := s.Read(ctx, 1, 1, func(int) error { return nil }, func(*weir.Batch) {})
			return err
		},
		"subscribe": func(s *Stream) error {
			sub, err := s.Subscribe(ctx, Head)
			if err == nil {
				sub.Close()
			}
			return err
		},
	}
	for name, use := range uses {
		for _, outlines := range []bool{true, false} {
			engines(t, func(t *testing.T, e engine.Engine) {
				if !outlines {
					e = &withoutOutlines{Engine: e}
				}
				h := open(t, e, Options{})
				s := made(t, h, func(s *Spec) { s.TTLSeconds, s.RetentionSeconds = 8_000, 100_000 })
				publish(t, s, at(1, "x"))
				time.Sleep(7_000 * time.Second)
				if err := use(s); err != nil {
					t.Fatal(err)
				}
				h.Close() // does not store the time of the use
				time.Sleep(7_990 * time.Second)
				h = open(t, e, Options{})
				defer h.Close()
				if _, err := h.Create(ctx, Spec{ID: s.ID, Project: "p", Name: "n", RetentionSeconds: 3600, MaxBytes: 1 << 20, Mode: weir.Raw}); code(err) != weir.StreamNameTaken {
					t.Errorf("%s: creating the stream again: %v", name, err)
				}
				time.Sleep(5 * time.Second)
				if _, err := h.Stream(s.ID); err != nil {
					t.Errorf("%s: the stream expired too early: %v", name, err)
				}
				time.Sleep(1_025 * time.Second)
				if _, err := h.Stream(s.ID); err == nil {
					t.Errorf("%s: the stream expired too late", name)
				}
			})
		}
	}
}

// While the store is full, reads go on, but the time of the last use is not stored, because that
// would use up the space for deleting streams. The time is stored soon after there is space again.
func TestUsesOfAFullStore(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		full := &withoutOutlines{Engine: e}
		full.state.Store(uint32(engine.Full))
		h := open(t, full, Options{})
		defer h.Close()
		s := made(t, h, func(s *Spec) { s.TTLSeconds = 8_000 })
		time.Sleep(7_000 * time.Second)
		for range 100 {
			p, err := s.Page(ctx, PageQuery{From: Oldest, Limit: 1, Bytes: 1})
			if err != nil {
				t.Fatal(err)
			}
			p.Close()
			time.Sleep(time.Second)
		}
		if n := full.updates.Load(); n != 0 {
			t.Errorf("%d writes to a full store, want none", n)
		}
		full.state.Store(uint32(engine.Ready))
		time.Sleep(15 * time.Second)
		if n := full.updates.Load(); n != 1 {
			t.Errorf("%d writes after there was space again, want 1", n)
		}
	})
}

// A stream that is deleted while the hub checks whether it has expired leaves the queue of
// lifetimes, and does not return to it.
func TestDeletedStreamLeavesTheQueueOfLifetimes(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, func(s *Spec) { s.TTLSeconds = 80_000 })
		l := lifeOf(s)
		h.lives.mu.Lock()
		heap.Remove(&h.lives.queue, l.place-1) // as sweepLives does
		h.lives.mu.Unlock()
		if err := s.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		h.requeue(l, lifeRetry)
		if n := len(h.lives.queue); n != 0 {
			t.Errorf("%d streams are queued, want none", n)
		}
	})
}

// A stream that expires while a request looks it up is gone, even if the hub forgets its lifetime
// between the two steps of the lookup.
func TestStreamExpiresDuringLookup(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, func(s *Spec) { s.TTLSeconds = 80_000 })
		h.forgetLife(s) // as forget does, which has removed the stream from the catalog before
		if found, err := h.Stream(s.ID); !isNotFound(err) {
			t.Errorf("found %v, %v; want not found", found, err)
		}
	})
}

// twoNodes is a store in memory that says that other nodes use it too.
type twoNodes struct{ engine.Engine }

func (twoNodes) Shared() bool { return true }

// A node does not know at once that another node has used a stream. Nevertheless a stream that one
// node uses again and again expires on no node, and a stream that is not used expires on all nodes
// soon.
func TestTimeToLiveOnTwoNodes(t *testing.T) {
	uses := []func(s *Stream){func(s *Stream) { s.use(ctx) }, func(s *Stream) { lifeOf(s).published() }}
	for i, seconds := range []int64{1, 1, 2, 2, 7, 7, 30, 30, 1000, 1000} {
		use := uses[i%2]
		synctest.Test(t, func(t *testing.T) {
			e := twoNodes{memory.New()}
			defer e.Close()
			a, b := open(t, e, Options{}), open(t, e, Options{})
			defer a.Close()
			defer b.Close()
			a.Lead(func() bool { return false })
			ttl := time.Duration(seconds) * time.Second
			s := made(t, a, func(s *Spec) { s.TTLSeconds = seconds })
			time.Sleep(ttl / 2)
			for range 200 {
				use(s)
				time.Sleep(ttl * 9 / 10)
				for name, h := range map[string]*Hub{"that uses the stream": a, "that does not use it": b} {
					if _, err := h.Stream(s.ID); err != nil {
						t.Fatalf("time to live of %v: the stream has expired on the node %s", ttl, name)
					}
				}
			}
			time.Sleep(ttl + ttl/2 + 2*time.Second)
			for name, h := range map[string]*Hub{"that used the stream": a, "that did not use it": b} {
				if s, err := h.Stream(s.ID); err == nil {
					t.Errorf("time to live of %v: the stream has not expired on the node %s: last use %v ago, ends in %v", ttl, name, h.now().Std().Sub(weir.Time(lifeOf(s).used.Load()).Std()), lifeOf(s).end().Std().Sub(h.now().Std()))
				}
			}
		})
	}
}

// Once a node has said that a stream does not exist because its lifetime has ended, the stream
// exists on no node, even if another node knows of a later use.
func TestExpiredOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := twoNodes{memory.New()}
		defer e.Close()
		a, b := open(t, e, Options{}), open(t, e, Options{})
		defer a.Close()
		defer b.Close()
		for _, h := range []*Hub{a, b} {
			h.Lead(func() bool { return false }) // a node that does not lead deletes no expired streams
		}
		s := made(t, a, func(s *Spec) { s.TTLSeconds = 10 })
		time.Sleep(4 * time.Second)
		s.use(ctx)
		time.Sleep(14 * time.Second)
		if _, err := a.Find(ctx, s.ID); err != nil {
			t.Fatalf("Find on the node that used the stream: %v", err)
		}
		if _, err := b.Find(ctx, s.ID); !isNotFound(err) {
			t.Fatalf("Find on the node that does not know of the use: %v", err)
		}
		if _, err := a.Find(ctx, s.ID); !isNotFound(err) {
			t.Errorf("Find on the node that used the stream, after the other node has said that it does not exist: %v", err)
		}
	})
}

// The same holds if the node refuses a batch: before the client is told that the stream does not
// exist, the stream is deleted, or the node finds out that another node has used it.
func TestBatchForAnExpiredStream(t *testing.T) {
	for _, usedElsewhere := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := twoNodes{memory.New()}
			defer e.Close()
			var late atomic.Bool
			ahead := func() time.Time { return time.Now().Add(4 * time.Second) }
			a, b := open(t, e, Options{}), open(t, deaf{e, &late}, Options{Now: ahead})
			defer a.Close()
			defer b.Close()
			for _, h := range []*Hub{a, b} {
				h.Lead(func() bool { return false })
			}
			id := made(t, a, func(s *Spec) { s.TTLSeconds = 10 }).ID
			s, err := b.Stream(id)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(8 * time.Second)
			late.Store(true)
			if usedElsewhere {
				known, err := a.Stream(id)
				if err != nil {
					t.Fatal(err)
				}
				known.use(ctx)
			}
			time.Sleep(7 * time.Second)
			_, err = s.Publish(ctx, &Publish{Batch: weir.Batch{Payload: []byte("[1]"), Events: 1}})
			if !isNotFound(err) {
				t.Fatalf("a publish on a node for which the stream has expired: %v", err)
			}
			if found, err := Replaced(ctx, s, err); found != usedElsewhere || err != nil {
				t.Errorf("used on another node: %v; the publish is to be repeated: %v, %v", usedElsewhere, found, err)
			}
			if _, err := a.Stream(id); isNotFound(err) == usedElsewhere {
				t.Errorf("used on another node: %v; afterwards, that node finds the stream: %v", usedElsewhere, err)
			}
		})
	}
}

// deaf is an engine whose changes of documents do not arrive while the field is true.
type deaf struct {
	engine.Engine
	on *atomic.Bool
}

func (e deaf) Watch(ctx context.Context, of engine.Prefixes, visit func(engine.Change)) error {
	return e.Engine.Watch(ctx, of, func(c engine.Change) {
		if !e.on.Load() {
			visit(c)
		}
	})
}

// A node whose changes arrive late deletes no stream that another node has used: the document
// decides, and not what the node has heard of it.
func TestUseThatANodeHasNotHeardOf(t *testing.T) {
	finds := map[string]func(h *Hub, id weir.StreamID) error{
		"the sweeper": func(h *Hub, id weir.StreamID) error { return nil },
		"a request":   func(h *Hub, id weir.StreamID) error { _, err := h.Find(ctx, id); return err },
	}
	for name, find := range finds {
		synctest.Test(t, func(t *testing.T) {
			e := twoNodes{memory.New()}
			defer e.Close()
			var late atomic.Bool
			a, b := open(t, e, Options{}), open(t, deaf{e, &late}, Options{})
			defer a.Close()
			defer b.Close()
			a.Lead(func() bool { return false })
			s := made(t, a, func(s *Spec) { s.TTLSeconds = 100 })
			late.Store(true)
			for range 5 {
				time.Sleep(60 * time.Second)
				s.use(ctx)
				if err := find(b, s.ID); err != nil {
					t.Fatalf("%s, on the node that has not heard of the use: %v", name, err)
				}
			}
			if _, err := a.Find(ctx, s.ID); err != nil {
				t.Errorf("%s deleted the stream a moment after its last use: %v", name, err)
			}
		})
	}
}

// The log of an expired stream may end before the node hears that the stream was deleted. Its
// subscribers are still told that it expired.
func TestLogEndsBeforeTheDeletionIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := twoNodes{memory.New()}
		defer e.Close()
		var late atomic.Bool
		h := open(t, deaf{e, &late}, Options{})
		defer h.Close()
		h.Lead(func() bool { return false }) // the test deletes the stream, as another node would
		s := made(t, h, func(s *Spec) { s.TTLSeconds = 10 })
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		late.Store(true)
		time.Sleep(time.Minute)
		doc, err := e.Get(ctx, documentKey(s.ID))
		if err == nil {
			err = e.Expire(ctx, documentKey(s.ID), doc.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sub.Next(ctx, time.Hour); !errors.Is(err, ErrExpired) {
			t.Errorf("the subscription ended with %v, want ErrExpired", err)
		}
	})
}

// A publish that arrives while the hub deletes an expired stream is refused. Otherwise its
// batch would be acknowledged and deleted.
func TestPublishWhileAStreamExpires(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		var s atomic.Pointer[Stream]
		late := make(chan error, 10)
		h := open(t, &hooked{e, func() {
			_, err := s.Load().Publish(ctx, keyed(2))
			late <- err
		}}, Options{})
		defer h.Close()
		s.Store(made(t, h, func(s *Spec) { s.TTLSeconds = 10 }))
		publish(t, s.Load(), keyed(1))
		if err := <-late; !isNotFound(err) {
			t.Errorf("a publish to a stream that is being deleted: %v", err)
		}
	})
}

// A stream that another node deletes when its time to live has ended was not deleted by a client,
// even if this node knows of a later use that it could not store in time.
func TestLapsedWithoutTheLastUse(t *testing.T) {
	h := open(t, memory.New(), Options{})
	defer h.Close()
	s := made(t, h, func(s *Spec) { s.TTLSeconds = 3600 })
	h.shared = true
	l, now := lifeOf(s), h.now()
	l.used.Store(int64(now))
	for stored, want := range map[time.Duration]bool{-time.Hour: true, -time.Hour + time.Minute: false} {
		l.saved.Store(int64(now.Add(stored)))
		if got := seemsLapsed(s); got != want {
			t.Errorf("with a last use that was stored %v ago: the lifetime has ended: %t, want %t", -stored, got, want)
		}
	}
	h.shared = false
}
