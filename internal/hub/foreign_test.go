package hub

import (
	"context"
	"errors"
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

// A trim removes the oldest entries of a log, and stores a note about the state of the stream. If
// another node appends and trims further between the preparation of the note and the trim, the trim
// must store a note that is correct at the trim's position in the log. Otherwise a node that opens
// the log later would accept evicted sequences again.
func TestTrimAfterAnotherNodesTrim(t *testing.T) {
	for name, upTo := range map[string]weir.Seq{"other node evicted some known batches": 20, "other node evicted all known batches": 40} {
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
				t.Fatalf("the cursor on a third node is %d, %v; want %d", c.Cursor, err, upTo)
			}
			for _, seq := range []weir.Seq{low + 1, upTo - 10} {
				if ack, err := third.Publish(ctx, at(seq, "again")); code(err) != weir.InvalidSequence {
					t.Errorf("publishing the evicted sequence %d again: %+v, %v; want a refusal", seq, ack, err)
				}
			}
		})
	}
}

// A subscription waits while another one reads a batch of another node. If its client hangs up in
// the meantime, it ends at once, although the other one may still wait for the servers.
func TestHangUpWhileAnotherSubscriptionFetches(t *testing.T) {
	f, err := made(t, node(t, shared(t), Options{}), nil).acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer f.release()
	f.fetching <- struct{}{}
	defer func() { <-f.fetching }()
	gone, hangUp := context.WithCancel(ctx)
	hangUp()
	if err := f.fetch(gone, []*frame{{foreign: true}}); !errors.Is(err, context.Canceled) {
		t.Errorf("fetch: %v, want that it was cancelled", err)
	}
}

// A batch of another node is read from the log once, however many subscribers this node has.
func TestForeignBatchIsReadOnce(t *testing.T) {
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
			t.Errorf("subscriber %d got %q, want hello", i, got)
		}
		if i == 0 {
			first = &e.Frames[0][0]
		} else if first != &e.Frames[0][0] {
			t.Errorf("subscriber %d got its own copy of the frame", i)
		}
	}
}

// An idle stream is in the queue of the sweeper (which checks idle streams) once, however often the
// stream was used. Only the leading node opens the stream for the check.
func TestIdleCheckOnLeadingNodeOnly(t *testing.T) {
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
		t.Fatalf("the stream is in the queue %d times, want 1", n)
	}
	h.sweeper.checkBy(st, 0)
	h.Lead(func() bool { return false })
	h.sweeper.checkIdle()
	if st.traffic.open() != nil || len(h.sweeper.queue) != 1 || st.checkAt < h.now() {
		t.Error("a node that does not lead opened the stream, or did not postpone the check")
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
	if st.traffic.open() == nil {
		t.Error("the leading node did not open the stream")
	}
}

// A stream that another node deletes does not reappear, and its id can be reused at once.
func TestConcurrentlyDeletedStreamStaysDeleted(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	st := find(t, b, made(t, a, nil).ID)
	if err := find(t, a, st.ID).Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.engine.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Object(ctx); code(err) != weir.StreamNotFound {
		t.Errorf("Object of the deleted stream: %v", err)
	}
	if _, err := b.Stream(st.ID); code(err) != weir.StreamNotFound || b.Count(st.Project) != 0 {
		t.Errorf("the deleted stream was found (error %v) or is still counted (%d streams)", err, b.Count(st.Project))
	}
	if _, err := b.Create(ctx, st.Spec()); err != nil {
		t.Errorf("create a stream with the id of the deleted one: %v", err)
	}
}

// If the store is full, the hub retries closing gaps at intervals, not in a tight loop.
func TestClosingGapsIsRetriedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &fullLater{Engine: memory.New()}
		h := open(t, full, Options{GapGrace: 10 * time.Millisecond})
		defer h.Close()
		st := find(t, h, made(t, h, nil).ID)
		publish(t, st, at(1, "x"))
		publish(t, st, at(3, "x"))
		full.refuses.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := full.tries.Load(); n < 2 || n > 20 {
			t.Errorf("tried %d times in ten seconds, want 2 to 20", n)
		}
	})
}

// fullLater is an engine that refuses appends with ErrFull while its field refuses is set.
type fullLater struct {
	engine.Engine
	refuses atomic.Bool
	tries   atomic.Int64
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
	if l.e.refuses.Load() {
		l.e.tries.Add(1)
		return engine.ErrFull
	}
	return l.Log.Append(ctx, e)
}
