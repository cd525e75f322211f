package hub

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/engine/memory"
)

func toName(s string) Change     { return Change{Name: &s} }
func toBytes(n int64) Change     { return Change{MaxBytes: &n} }
func toRetention(n int64) Change { return Change{RetentionSeconds: &n} }

func change(t *testing.T, s *Stream, c Change) weir.Stream {
	t.Helper()
	o, err := s.Change(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// kept returns which of the batches from 1 to last can be read.
func kept(s *Stream, last weir.Seq) (all []weir.Seq) {
	for seq := weir.Seq(1); seq <= last; seq++ {
		if _, err := s.Batch(ctx, seq); err == nil {
			all = append(all, seq)
		}
	}
	return all
}

// Lower limits evict at once, whether the log is open or closed, and subscribers get a gap. Higher
// limits bring no batch back, and apply to batches stored from then on. All of this survives a
// restart.
func TestChangeOfLimits(t *testing.T) {
	for _, idle := range []bool{false, true} {
		engines(t, func(t *testing.T, e engine.Engine) {
			h := open(t, e, Options{})
			s := made(t, h, nil)
			for range 9 {
				publish(t, s, &Publish{Batch: weir.Batch{Payload: make([]byte, 200)}})
				<-time.After(10 * time.Second)
			}
			if idle {
				<-time.After(time.Minute)
				if s.openFeed() != nil {
					t.Fatal("the log is still open")
				}
			}
			sub, err := s.Subscribe(ctx, After(1))
			if err != nil {
				t.Fatal(err)
			}
			if idle {
				sub.Close()
				<-time.After(time.Minute)
			}
			if o := change(t, s, toBytes(1000)); o.BytesStored != 1000 || o.MaxBytes != 1000 || o.Cursor != 9 {
				t.Errorf("after max_bytes was set to 1000, the stream is %+v", o)
			}
			if got := kept(s, 9); !slices.Equal(got, []weir.Seq{5, 6, 7, 8, 9}) {
				t.Errorf("after max_bytes was set to 1000, the stream keeps %v, want 5 to 9", got)
			}
			if !idle {
				if ev, err := sub.Next(ctx, time.Hour); err != nil || ev.Gap == nil || *ev.Gap != (Gap{From: 2, To: 4}) {
					t.Errorf("the subscriber got %+v, %v; want the gap from 2 to 4", ev, err)
				}
				sub.Close()
			}
			if o := change(t, s, toBytes(1<<30)); o.BytesStored != 1000 {
				t.Errorf("after max_bytes was set to 1 GiB, the stream is %+v", o)
			}
			publish(t, s, &Publish{Batch: weir.Batch{Payload: make([]byte, 200)}})
			age := int64(40)
			if idle {
				age += 120
			}
			if o := change(t, s, toRetention(age)); o.BytesStored != 800 || o.RetentionSeconds != age {
				t.Errorf("after the retention was set to %d s, the stream is %+v", age, o)
			}
			change(t, s, toRetention(3600))
			change(t, s, toName("new"))
			want := []weir.Seq{7, 8, 9, 10}
			if got := kept(s, 10); !slices.Equal(got, want) {
				t.Errorf("at the end: kept %v, want %v", got, want)
			}
			h.Close()
			h = open(t, e, Options{})
			defer h.Close()
			s = find(t, h, s.ID)
			if got, spec := kept(s, 10), s.Spec(); !slices.Equal(got, want) || spec.Name != "new" || spec.MaxBytes != 1<<30 || spec.RetentionSeconds != 3600 {
				t.Errorf("after a restart: kept %v with %+v, want %v", got, spec, want)
			}
		})
	}
}

// A crash right after larger limits were acknowledged does not bring evicted batches back, because
// they were trimmed (removed from the log) before the acknowledgement.
func TestLargerLimitsBringNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		j, err := journal.Open(fs, damageable)
		if err != nil {
			t.Fatal(err)
		}
		h := open(t, j, Options{})
		s := made(t, h, func(s *Spec) { s.MaxBytes = 1000 })
		for range 9 {
			publish(t, s, &Publish{Batch: weir.Batch{Payload: make([]byte, 200)}})
		}
		change(t, s, toBytes(1<<20))
		after := fs.Crash(faulty.LoseAll, nil)
		h.Close()
		j.Close()
		if j, err = journal.Open(after, damageable); err != nil {
			t.Fatal(err)
		}
		h = open(t, j, Options{})
		if got := kept(find(t, h, s.ID), 9); !slices.Equal(got, []weir.Seq{5, 6, 7, 8, 9}) {
			t.Errorf("after the crash: kept %v, want 5 to 9", got)
		}
		h.Close()
		j.Close()
	})
}

// Every node applies a change of the settings: reads that start afterwards, on any node, see
// neither the old settings nor the batches that the new limits exclude.
func TestChangeOnAnotherNode(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	here := made(t, a, nil)
	there := find(t, b, here.ID)
	for range 9 {
		publish(t, here, &Publish{Batch: weir.Batch{Payload: make([]byte, 200)}})
	}
	if got := kept(there, 9); len(got) != 9 {
		t.Fatalf("the other node keeps %v, want 1 to 9", got)
	}
	name, most := "new", int64(1000)
	change(t, here, Change{Name: &name, MaxBytes: &most})
	if err := b.engine.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if o, err := there.Object(ctx); err != nil || o.Name != "new" || o.MaxBytes != 1000 || o.BytesStored != 1000 {
		t.Errorf("the other node shows %+v, %v", o, err)
	}
	if got := kept(there, 9); !slices.Equal(got, []weir.Seq{5, 6, 7, 8, 9}) {
		t.Errorf("after the change, the other node keeps %v, want 5 to 9", got)
	}
}

// Concurrent changes of different settings all take effect. A deleted stream cannot be changed,
// even if its id is in use again.
func TestConcurrentChanges(t *testing.T) {
	h := open(t, memory.New(), Options{})
	defer h.Close()
	s := made(t, h, func(s *Spec) { s.ID = weir.NewStreamID() })
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { change(t, s, toName(fmt.Sprint(i))) })
		all.Go(func() { change(t, s, toBytes(int64(1<<20+i))) })
		all.Go(func() { change(t, s, toRetention(int64(60+i))) })
	}
	all.Wait()
	change(t, s, toName("last"))
	change(t, s, toBytes(5<<20))
	change(t, s, toRetention(99))
	o, err := s.Object(ctx)
	if spec := s.Spec(); err != nil || spec.Name != "last" || spec.MaxBytes != 5<<20 || spec.RetentionSeconds != 99 || o.Name != "last" {
		t.Errorf("the settings are %+v, and the object is %+v, %v", spec, o, err)
	}
	if n := len(h.catalog.bounds); n != 1 {
		t.Errorf("the catalog keeps %d values of bounds for one stream", n)
	}
	spec := s.Spec()
	if err := s.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Change(ctx, toName("x")); code(err) != weir.StreamNotFound {
		t.Errorf("changing a deleted stream: %v", err)
	}
	if _, err := h.Create(ctx, spec); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Change(ctx, toName("x")); code(err) != weir.StreamNotFound {
		t.Errorf("changing a deleted stream whose id is in use again: %v", err)
	}
}

// hooked is an engine that calls a function before it changes or deletes a document.
type hooked struct {
	engine.Engine
	before func()
}

func (e *hooked) Update(ctx context.Context, key string, value []byte, rev engine.Revision) (engine.Document, error) {
	e.before()
	return e.Engine.Update(ctx, key, value, rev)
}

func (e *hooked) Delete(ctx context.Context, key string, rev engine.Revision) error {
	e.before()
	return e.Engine.Delete(ctx, key, rev)
}

func (e *hooked) Expire(ctx context.Context, key string, rev engine.Revision) error {
	e.before()
	return e.Engine.Expire(ctx, key, rev)
}

// While larger limits of a stream are being stored, the old limits evict nothing. Otherwise a batch
// could be evicted after the trim that precedes the change, and a restart would bring this batch
// back.
func TestNothingIsEvictedWhileLimitsGrow(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, func(s *Spec) { s.MaxBytes, s.RetentionSeconds = 1000, 60 })
		h.engine = &hooked{e, func() {
			publish(t, s, &Publish{Batch: weir.Batch{Payload: make([]byte, 200)}})
			<-time.After(40 * time.Second)
		}}
		for range 6 {
			publish(t, s, &Publish{Batch: weir.Batch{Payload: make([]byte, 200)}})
		}
		<-time.After(30 * time.Second)
		most, seconds := int64(1200), int64(90)
		change(t, s, Change{MaxBytes: &most, RetentionSeconds: &seconds})
		before := kept(s, 7)
		h.Close()
		h = open(t, e, Options{})
		if after := kept(find(t, h, s.ID), 7); !slices.Equal(after, before) {
			t.Errorf("before the restart %v could be read, afterwards %v", before, after)
		}
		h.Close()
	})
}

// A stream is deleted even if its settings change during the deletion.
func TestDeleteDuringChange(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		h.engine = &hooked{e, func() {
			h.engine = e
			change(t, s, toName("new"))
		}}
		if err := s.Delete(ctx); err != nil {
			t.Error(err)
		}
		if _, err := h.Stream(s.ID); code(err) != weir.StreamNotFound {
			t.Errorf("finding the deleted stream: %v", err)
		}
	})
}

// failed is an engine whose updates of documents fail, and make it read-only.
type failed struct {
	engine.Engine
	readOnly atomic.Bool
}

func (e *failed) Update(context.Context, string, []byte, engine.Revision) (engine.Document, error) {
	e.readOnly.Store(true)
	return engine.Document{}, engine.ErrReadOnly
}

func (e *failed) Status() engine.Status {
	if e.readOnly.Load() {
		return engine.Status{State: engine.ReadOnly, Reason: engine.ErrReadOnly}
	}
	return e.Engine.Status()
}

// A change that made the store read-only may take effect after a restart. So until then, nothing is
// evicted that the larger limits keep.
func TestChangeWithUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, &failed{Engine: memory.New()}, Options{})
		defer h.Close()
		s := made(t, h, func(s *Spec) { s.RetentionSeconds = 60 })
		publish(t, s, at(1, "x"))
		if _, err := s.Change(t.Context(), toRetention(3600)); err == nil {
			t.Fatal("the change succeeded")
		}
		time.Sleep(20 * time.Minute) // longer than an idle feed stays open
		if got := kept(s, 1); len(got) != 1 {
			t.Errorf("the batches %v are kept, want the first one", got)
		}
	})
}
