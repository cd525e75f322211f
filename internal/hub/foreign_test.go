package hub

import (
	"context"
	"maps"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// A trim that was asked for before another node appended and trimmed further says what holds at its
// place: nothing that was evicted is open again on a node that reads the log anew.
func TestTrimOvertaken(t *testing.T) {
	for name, upTo := range map[string]weir.Seq{"further": 20, "all that it knew": 40} {
		t.Run(name, func(t *testing.T) {
			s := shared(t)
			a, b := node(t, s, Options{}), node(t, s, Options{})
			here := made(t, a, func(s *Spec) { s.MaxBytes = 1000 })
			there := find(t, b, here.ID)
			load := strings.Repeat("x", 100)
			for seq := range weir.Seq(15) {
				publish(t, here, at(seq+1, load))
			}
			f, err := here.acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer f.release()
			low, note := f.Note()
			for seq := weir.Seq(16); seq <= upTo; seq++ {
				publish(t, there, at(seq, load))
			}
			g, err := there.acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer g.release()
			g.trim()
			if err := f.catchUp(ctx); err != nil {
				t.Fatal(err)
			}
			if err := f.log.Trim(ctx, low, note); err != nil {
				t.Fatal(err)
			}
			third := find(t, node(t, s, Options{}), here.ID)
			if c, err := third.Cursor(ctx); err != nil || c.Cursor != upTo {
				t.Fatalf("a third node has the cursor %d, %v", c.Cursor, err)
			}
			for _, seq := range []weir.Seq{low + 1, upTo - 10} {
				if ack, err := third.Publish(ctx, at(seq, "again")); code(err) != weir.InvalidSequence {
					t.Errorf("%d was evicted, and published again it gets %+v, %v", seq, ack, err)
				}
			}
		})
	}
}

// What another node published is read once, however many subscribe to it here.
func TestReadOnceForAll(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	here := made(t, a, nil)
	var subs []*Subscription
	for range 3 {
		sub, err := find(t, b, here.ID).Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		subs = append(subs, sub)
	}
	publish(t, here, at(1, "hello"))
	var first *byte
	for i, sub := range subs {
		e, err := sub.Next(ctx, time.Minute)
		if err != nil || len(e.Frames) != 1 {
			t.Fatalf("subscriber %d got %d frames, %v", i, len(e.Frames), err)
		}
		if got := maps.Collect(batchesOf(e)); got[1] != "hello" {
			t.Errorf("subscriber %d got %q", i, got)
		}
		if i == 0 {
			first = &e.Frames[0][0]
		} else if first != &e.Frames[0][0] {
			t.Errorf("subscriber %d has a frame of its own", i)
		}
	}
}

// A stream that is used now and then waits once to be looked at, and only one node looks.
func TestOneLook(t *testing.T) {
	s := shared(t)
	h := node(t, s, Options{})
	st := find(t, h, made(t, h, nil).ID)
	for range 20 {
		if _, err := st.Cursor(ctx); err != nil {
			t.Fatal(err)
		}
		h.closeFeed(st, false)
	}
	if n := len(h.sweeper.queue); n != 1 {
		t.Fatalf("the stream is in the queue %d times", n)
	}
	h.sweeper.checkBy(st, 0)
	h.Lead(func() bool { return false })
	h.sweeper.checkIdle()
	if st.feed != nil || len(h.sweeper.queue) != 1 || st.checkAt < h.now() {
		t.Error("a node that is not the first looked, or does not look later")
	}
	h.sweeper.mu.Lock()
	st.checkAt = 0
	h.sweeper.mu.Unlock()
	h.Lead(func() bool { return true })
	h.sweeper.checkIdle()
	for h.sweeper.checking.Load() {
		runtime.Gosched()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.feed == nil {
		t.Error("the first node did not look")
	}
}

// A stream that another node deletes while this one makes it, or reads the catalog, does not come
// back.
func TestDeletedMeanwhile(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	st := find(t, b, made(t, a, nil).ID)
	if err := find(t, a, st.ID).Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.catchUp(ctx); err != nil {
		t.Fatal(err)
	}
	again := &Stream{Spec: st.Spec, CreatedAt: st.CreatedAt, hub: b, log: st.log}
	b.catalog.tombstones = map[weir.StreamID]engine.LogID{}
	b.catalog.noteDeleted(st.ID, st.log)
	b.catalog.add(again)
	b.catalog.loaded()
	if _, err := b.Stream(st.ID); code(err) != weir.StreamNotFound {
		t.Errorf("deleted while the catalog was read: %v", err)
	}
	b.catalog.add(again) // as if nothing had been heard of it
	if _, err := again.Object(ctx); code(err) != weir.StreamNotFound {
		t.Errorf("its object: %v", err)
	}
	if _, err := b.Stream(st.ID); code(err) != weir.StreamNotFound || b.Count(st.Project) != 0 {
		t.Errorf("after that it is found, %v, or counts: %d", err, b.Count(st.Project))
	}
	if _, err := b.Create(ctx, st.Spec); err != nil {
		t.Errorf("its name is not free: %v", err)
	}
}

// Gaps that cannot be closed, since the store is full, are not tried again at once.
func TestGapsOfAFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &fullLater{Engine: memory.New()}
		h := open(t, full, Options{GapGrace: 10 * time.Millisecond})
		defer h.Close()
		st := find(t, h, made(t, h, nil).ID)
		publish(t, st, at(1, "x"))
		publish(t, st, at(3, "x"))
		full.now.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := full.tries.Load(); n < 2 || n > 20 {
			t.Errorf("tried %d times in ten seconds", n)
		}
	})
}

// fullLater is an engine that is full when it is told so.
type fullLater struct {
	engine.Engine
	now   atomic.Bool
	tries atomic.Int64
}

type fullLog struct {
	engine.Log
	e *fullLater
}

func (e *fullLater) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &fullLog{l, e}, err
}

func (l *fullLog) Append(ctx context.Context, e *engine.Entry) error {
	if l.e.now.Load() {
		l.e.tries.Add(1)
		return engine.ErrFull
	}
	return l.Log.Append(ctx, e)
}
