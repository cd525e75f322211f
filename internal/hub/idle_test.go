package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// slowTrims is an engine whose trims (removals of the oldest entries of a log) report to the
// channel begun, and wait until the channel end is closed.
type slowTrims struct {
	engine.Engine
	begun, end chan struct{}
}

type slowTrimsLog struct {
	engine.Log
	e *slowTrims
}

func (e *slowTrims) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &slowTrimsLog{l, e}, err
}

func (l *slowTrimsLog) Trim(ctx context.Context, low weir.Seq, note []byte) error {
	l.e.begun <- struct{}{}
	<-l.e.end
	return l.Log.Trim(ctx, low, note)
}

// skewed is an engine of a node whose clock is wrong: it refuses every trim.
type skewed struct{ engine.Engine }

type skewedLog struct{ engine.Log }

func (e skewed) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &skewedLog{l}, err
}

func (l *skewedLog) Trim(context.Context, weir.Seq, []byte) error { return engine.ErrClock }

// madeUntrimmed creates a stream with an evicted batch that is still in the log.
func madeUntrimmed(t *testing.T, h *Hub) *Stream {
	t.Helper()
	s := made(t, h, func(s *Spec) { s.MaxBytes = 1000 })
	publish(t, s, at(1, strings.Repeat("x", 800)))
	publish(t, s, at(2, strings.Repeat("x", 800)))
	return s
}

// While the clock of a node is wrong, the node says so once. Its hub does not add a line per stream
// and second about trims that wait for the right time.
func TestTrimWithAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := open(t, skewed{memory.New()}, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer h.Close()
		s := madeUntrimmed(t, h)
		if err := s.openFeed().trim(); !errors.Is(err, engine.ErrClock) {
			t.Errorf("trim: %v", err)
		}
		if log.Len() > 0 {
			t.Errorf("the hub logged %s", log.String())
		}
	})
}

// A log is not closed while it is being trimmed. Otherwise the trim would fail, and the state that
// the hub keeps of the stream would claim that the log is trimmed.
func TestLogStaysOpenDuringATrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &slowTrims{memory.New(), make(chan struct{}), make(chan struct{})}
		h := open(t, e, Options{})
		defer h.Close()
		s := madeUntrimmed(t, h)
		f, trimmed := s.openFeed(), make(chan error)
		go func() { trimmed <- f.trim() }()
		<-e.begun
		if h.closeFeed(s, false); s.openFeed() != f {
			t.Error("the log was closed while it was being trimmed")
		}
		close(e.end)
		if err := <-trimmed; err != nil {
			t.Error(err)
		}
		if h.closeFeed(s, false); s.openFeed() != nil {
			t.Error("the log stays open after the trim")
		}
	})
}

// One trim of a stream runs at a time. The other one does not wait for a mutex: otherwise
// synctest.Wait would never return, and neither would the scheduler of a simulation.
func TestTrimsWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &slowTrims{memory.New(), make(chan struct{}, 2), make(chan struct{})}
		h := open(t, e, Options{})
		defer h.Close()
		s := madeUntrimmed(t, h)
		f, trimmed := s.openFeed(), make(chan error)
		for range 2 {
			go func() { trimmed <- f.trim() }()
		}
		synctest.Wait()
		if n := len(e.begun); n != 1 {
			t.Errorf("%d trims run at the same time, want one", n)
		}
		close(e.end)
		for range 2 {
			if err := <-trimmed; err != nil {
				t.Error(err)
			}
		}
	})
}

// watched is an engine that counts how often logs are opened and trimmed.
type watched struct {
	engine.Engine
	opened, trimmed atomic.Int64
}

func (w *watched) Open(ctx context.Context, id engine.LogID, judge engine.Judge) (engine.Log, error) {
	w.opened.Add(1)
	l, err := w.Engine.Open(ctx, id, judge)
	return &watchedLog{l, w}, err
}

type watchedLog struct {
	engine.Log
	by *watched
}

func (l *watchedLog) Trim(ctx context.Context, low weir.Seq, note []byte) error {
	l.by.trimmed.Add(1)
	return l.Log.Trim(ctx, low, note)
}

// After a start, the sweeper (which checks idle streams) opens only the streams that need it: those
// with a gap, and those that may hold more than MaxBytes. It opens every other stream when the
// first batch of that stream has expired.
func TestStartOpensFewStreams(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		before := open(t, e, Options{})
		whole, unused := made(t, before, nil), made(t, before, nil)
		large := made(t, before, func(s *Spec) { s.MaxBytes = 5 * 200 })
		hole, late := made(t, before, nil), made(t, before, nil)
		for seq := range weir.Seq(10) {
			publish(t, whole, at(seq+1, "x"))
			publish(t, large, at(seq+1, strings.Repeat("x", 200)))
		}
		publish(t, hole, at(1, "x"))
		publish(t, hole, at(3, "x"))
		publish(t, late, at(2, "x"))
		before.Close()

		w := &watched{Engine: e}
		h := open(t, w, Options{})
		defer h.Close()
		for _, old := range []*Stream{whole, unused} {
			want, updated, _ := old.Glance()
			object, at, known := find(t, h, old.ID).Glance()
			if !known || object != want || at != updated {
				t.Errorf("after the start, the stream is %+v, updated %s, known %v; want %+v, updated %s", object, at, known, want, updated)
			}
		}
		idle(t, h)
		if n := w.opened.Load(); n != 3 {
			t.Errorf("%d streams were opened, want the three that need it", n)
		}
		for s, missing := range map[*Stream]weir.Seq{hole: 2, late: 1} {
			if _, err := find(t, h, s.ID).Publish(ctx, at(missing, "y")); code(err) != weir.InvalidSequence {
				t.Errorf("publish into a gap that was open at the start: %v; want it closed", err)
			}
		}
		if o, _ := e.Outline(large.log); o.Entries != 5 {
			t.Errorf("the log of the large stream has %d entries, want the 5 that fit", o.Entries)
		}
		<-time.After(time.Hour + latest + 2*trimAfter)
		synctest.Wait()
		for _, s := range []*Stream{whole, unused, large, hole, late} {
			if o, _ := e.Outline(s.log); o.Entries != 0 {
				t.Errorf("after all batches expired, the log of %s has %d entries", s.ID, o.Entries)
			}
		}
	})
}

// A stream without evicted batches is not trimmed, even if sequence 0 was never stored, so that its
// lowest batch is 1.
func TestNothingToTrim(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		w := &watched{Engine: e}
		h := open(t, w, Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "x"))
		idle(t, h)
		if n := w.trimmed.Load(); n != 0 {
			t.Errorf("the log was trimmed %d times, but no batch was evicted", n)
		}
	})
}

// A stream whose batches expire one after another is trimmed about once per minute, whether the
// stream is in use or not. Each trim writes a record to the log, so trims must be rare.
func TestSlowStreamsAreTrimmedRarely(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		w := &watched{Engine: e}
		h := open(t, w, Options{})
		defer h.Close()
		const batches = 200
		s := made(t, h, func(s *Spec) { s.RetentionSeconds = 16 * 60 })
		for range batches {
			publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte("x")}})
			<-time.After(15 * time.Second)
		}
		<-time.After(20 * time.Minute)
		synctest.Wait()
		if o, _ := e.Outline(s.log); o.Entries != 0 {
			t.Errorf("after all batches expired, the log has %d entries", o.Entries)
		}
		if n := w.trimmed.Load(); n > batches/3 {
			t.Errorf("%d trims for %d batches, want a third at most", n, batches)
		}
	})
}

// If very many streams are open, the hub closes idle streams sooner. Streams with few batches leave
// no state in memory.
func TestManyStreamsCloseSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memory.New(), Options{StreamsPerProject: 1 << 20})
		defer h.Close()
		for i := range manyOpen + 1 {
			s := made(t, h, func(s *Spec) { s.Name = fmt.Sprint(i) })
			publish(t, s, at(1, "x"))
		}
		time.Sleep(idleSoon + 3*sweepEvery)
		synctest.Wait()
		if n := h.Stats().Open; n != 0 {
			t.Errorf("%d streams are open, want none", n)
		}
		if n := h.folded.of.Len(); n != 0 {
			t.Errorf("the states of %d streams are kept, although each has one batch", n)
		}
	})
}

// A sequence for which a request is being received stays open, even if the log of its stream is
// closed meanwhile. The memory for publishes in progress is freed after the last publish.
func TestTrafficOfAnIdleStream(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		slow := at(1, "x")
		if ack, err := s.Decide(ctx, slow); ack != nil || err != nil {
			t.Fatal(ack, err)
		}
		idle(t, h)
		publish(t, s, at(2, "x"))
		<-time.After(time.Minute)
		if ack := publish(t, s, slow); ack.Duplicate || ack.Seq != 1 {
			t.Errorf("publish of the sequence that stayed open: %+v", ack)
		}
		slow.Release()
		idle(t, h)
		if s.traffic != nil {
			t.Error("an idle stream keeps memory for publishes in progress")
		}
	})
}

// A start with so many streams that two goroutines look at them misses none.
func TestStartWithManyStreams(t *testing.T) {
	e := memory.New()
	h := open(t, e, Options{StreamsPerProject: 3 * manyOpen})
	for range 2*manyOpen + 1 {
		if _, err := h.Create(ctx, Spec{Project: "p", Name: "n", RetentionSeconds: 3600, MaxBytes: 1 << 20, Mode: weir.Raw}); err != nil {
			t.Fatal(err)
		}
	}
	h.Close()
	h = open(t, e, Options{})
	defer h.Close()
	unknown := 0
	for _, s := range h.Streams() {
		if s.summary != empty(s.CreatedAt) {
			unknown++
		}
	}
	if n := len(h.Streams()); n != 2*manyOpen+1 || unknown > 0 {
		t.Errorf("there are %d streams, and nothing is known of %d of them; want %d and 0", n, unknown, 2*manyOpen+1)
	}
}
