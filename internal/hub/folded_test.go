package hub

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/stream"
)

// counting is an engine that counts the entries whose headers the hub reads when it opens a log.
type counting struct {
	engine.Engine
	read atomic.Int64
}

func (c *counting) Open(ctx context.Context, id engine.LogID, judge engine.Judge) (engine.Log, error) {
	return c.Engine.Open(ctx, id, counted{judge, c})
}

type counted struct {
	engine.Judge
	by *counting
}

func (c counted) Restore(note []byte, entries iter.Seq[*engine.Header]) error {
	return c.Judge.Restore(note, func(yield func(*engine.Header) bool) {
		for h := range entries {
			c.by.read.Add(1)
			if !yield(h) {
				return
			}
		}
	})
}

// idle waits until the hub has closed the logs of all streams.
func idle(t *testing.T, h *Hub) {
	t.Helper()
	time.Sleep(max(idleFor, trimAfter) + 5*time.Second)
	synctest.Wait()
	if n := h.Stats().Open; n != 0 {
		t.Fatalf("%d streams are open after idling", n)
	}
}

// When an idle stream is reopened, it continues with the state that the hub kept and does not read
// its log. If there was no memory to keep the state, it reads the log. The answers are the same in
// both cases.
func TestReopening(t *testing.T) {
	for _, room := range []int64{0, 1} {
		engines(t, func(t *testing.T, e engine.Engine) {
			c := &counting{Engine: e}
			h := open(t, c, Options{StateBytes: room, GapGrace: time.Second})
			defer h.Close()
			s := made(t, h, func(s *Spec) { s.RetentionSeconds, s.MaxBytes = 300, 11*130 })
			keyed := func(key string) *Publish {
				return &Publish{Key: key, Batch: weir.Batch{Events: 1, Payload: make([]byte, 10)}}
			}
			for i := range 15 { // the first five are evicted
				publish(t, s, keyed(fmt.Sprint(i)))
			}
			publish(t, s, at(18, "above a gap"))
			before, err := s.Object(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				idle(t, h)
				c.read.Store(0)
				if ack := publish(t, s, keyed("14")); !ack.Duplicate || ack.Seq != 15 {
					t.Errorf("publish with a known key: got %+v, want a duplicate of batch 15", ack)
				}
				if n := c.read.Load(); (n == 0) != (room == 0) {
					t.Errorf("reopening read %d headers; the state was kept: %v", n, room == 0)
				}
				if _, err := s.Publish(ctx, at(16, "")); code(err) != weir.InvalidSequence {
					t.Errorf("publish into a closed gap: %v", err)
				}
				if after, err := s.Object(ctx); err != nil || after != before {
					t.Errorf("the stream object is %+v, %v; want %+v as before", after, err, before)
				}
			}
			time.Sleep(300 * time.Second)
			if after, err := s.Object(ctx); err != nil || after.BytesStored != 0 || after.Cursor != 18 {
				t.Errorf("after everything expired: %+v, %v", after, err)
			}
		})
	}
}

// The hub drops states of idle streams, the least recently used first, when they take more memory
// than allowed.
func TestFoldedStatesAreBounded(t *testing.T) {
	one := stream.Memory(stream.New(stream.Rules{}, 0))
	var d folded
	d.init(3 * one)
	streams := make([]*Stream, 5)
	for i := range streams {
		streams[i] = &Stream{}
		d.put(&fold{s: streams[i], state: stream.New(stream.Rules{}, 0), bytes: one})
	}
	for i, s := range streams {
		if f := d.take(s); (f != nil) != (i >= 2) {
			t.Errorf("state %d of 5 is kept: %v; only the last three must be kept", i, f != nil)
		}
	}
	if d.bytes != 0 || d.order.Len() != 0 || d.of.Len() != 0 {
		t.Errorf("after all states were taken, %d bytes are still counted", d.bytes)
	}
}

// The sweeper (which checks idle streams) forgets a deleted stream at once, however long its
// retention was, and the hub drops the state of that stream.
func TestDeletedStreamsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memory.New(), Options{})
		defer h.Close()
		var streams []*Stream
		for range 20 {
			s := made(t, h, func(s *Spec) { s.RetentionSeconds = 365 * 86400 })
			publish(t, s, at(1, "x"))
			streams = append(streams, s)
		}
		idle(t, h)
		if n := len(h.sweeper.queue); n != len(streams) {
			t.Fatalf("the sweeper's queue has %d streams, want %d", n, len(streams))
		}
		for i, s := range streams {
			if i%2 == 0 {
				publish(t, s, at(2, "open again"))
			}
			if err := s.Delete(ctx); err != nil {
				t.Fatal(err)
			}
			h.sweeper.checkBy(s, h.now()) // as closeFeed does if it ends after the stream was deleted
		}
		if len(h.sweeper.queue) != 0 || h.folded.of.Len() != 0 {
			t.Errorf("%d deleted streams are in the sweeper's queue, and %d states are kept", len(h.sweeper.queue), h.folded.of.Len())
		}
	})
}
