package hub

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// List filters all streams of a project, even if it returns few of them. It does not lock the
// catalog while it filters.
func TestListHoldsNoLockWhileItFilters(t *testing.T) {
	h := open(t, memory.New(), Options{})
	defer h.Close()
	const n = 3*listRun + 10
	var want []weir.StreamID
	for i := range n {
		if s := made(t, h, nil); i%(n/7) == 0 {
			want = append(want, s.ID)
		}
	}
	slices.Reverse(want)
	var got []weir.StreamID
	for before, more := uint64(0), true; more; {
		var page []weir.Stream
		var err error
		page, before, more, err = h.List(ctx, "p", before, 3, func(id weir.StreamID) bool {
			if !h.catalog.mu.TryLock() {
				t.Error("the catalog is locked while List filters")
			} else {
				h.catalog.mu.Unlock()
			}
			return slices.Contains(want, id)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			got = append(got, s.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}

// stuck is an engine in which Open blocks for one log until the channel release is closed.
type stuck struct {
	engine.Engine
	log     engine.LogID
	release chan struct{}
}

func (e *stuck) Open(ctx context.Context, id engine.LogID, judge engine.Judge) (engine.Log, error) {
	if id == e.log {
		<-e.release
	}
	return e.Engine.Open(ctx, id, judge)
}

// Outline returns false for the stuck log, so that the hub opens this log after a start.
func (e *stuck) Outline(id engine.LogID) (engine.Outline, bool) {
	o, known := e.Engine.Outline(id)
	return o, known && id != e.log
}

// The hub removes evicted batches from the logs of streams even while it waits for another stream
// to open.
func TestOpeningDoesNotDelayTrims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memory.New()
		first := open(t, e, Options{})
		slow, busy := made(t, first, nil), made(t, first, nil)
		first.Close()

		held := &stuck{Engine: e, log: slow.log, release: make(chan struct{})}
		h := open(t, held, Options{})
		s, err := h.Stream(busy.ID)
		if err != nil {
			t.Fatal(err)
		}
		s.bounds.Store(&bounds{s.Spec().RetentionSeconds, 10})
		f, err := s.acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer f.release()
		publish(t, s, at(1, "123456789"))
		publish(t, s, at(2, "123456789"))
		time.Sleep(trimAfter + 3*sweepEvery)
		synctest.Wait()
		f.mu.Lock()
		if f.trimmed != 2 {
			t.Errorf("the log was trimmed below %d, want 2", f.trimmed)
		}
		f.mu.Unlock()
		close(held.release)
		h.Close()
	})
}

// A stream whose lifetime has ended is in no list, even before the hub deletes it.
func TestListWithoutExpired(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		lasting := made(t, h, nil)
		<-time.After(sweepEvery / 2)
		made(t, h, func(s *Spec) { s.TTLSeconds = 10 })
		list := func() (ids []weir.StreamID) {
			all, _, _, err := h.List(ctx, "p", 0, 10, func(weir.StreamID) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				ids = append(ids, o.ID)
			}
			return ids
		}
		if ids := list(); len(ids) != 2 {
			t.Errorf("the list has %v, want two streams", ids)
		}
		<-time.After(10*time.Second + sweepEvery/4)
		if ids := list(); len(ids) != 1 || ids[0] != lasting.ID {
			t.Errorf("after ten seconds the list has %v, want only %s", ids, lasting.ID)
		}
	})
}

// A server may have a million streams, so every field of a stream counts.
func TestStreamSize(t *testing.T) {
	if size := unsafe.Sizeof(Stream{}); size > 160 {
		t.Errorf("a Stream takes %d bytes", size)
	}
}
