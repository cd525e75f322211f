package hub

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
)

// endOf reads a subscription to the end of the stream, and returns the sequences that it got.
func endOf(t *testing.T, s *Stream, from From) (got []weir.Seq) {
	t.Helper()
	sub, err := s.Subscribe(ctx, from)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for {
		e, err := sub.Next(ctx, time.Minute)
		if errors.Is(err, ErrEnded) {
			return got
		}
		if err != nil || len(e.Frames) == 0 {
			t.Errorf("got %+v, %v; want a batch or the end", e, err)
			return got
		}
		for _, frame := range e.Frames {
			for len(frame) > 0 {
				got = append(got, weir.Seq(binary.BigEndian.Uint64(frame)))
				frame = frame[12+binary.BigEndian.Uint32(frame[8:]):]
			}
		}
	}
}

// A closed stream still counts as closed after the hub has closed its log, after the hub is opened
// again, and after all batches expired and were trimmed (removed from the log). A waiting
// subscription is told that the stream has ended.
func TestClosedStream(t *testing.T) {
	for _, by := range []string{"close", "last batch"} {
		engines(t, func(t *testing.T, e engine.Engine) {
			h := open(t, e, Options{})
			s := made(t, h, func(s *Spec) { s.RetentionSeconds = 600 })
			publish(t, s, at(1, "a"))
			ended := make(chan []weir.Seq)
			go func() { ended <- endOf(t, s, Oldest) }()
			synctest.Wait()
			want := []weir.Seq{1}
			if by == "close" {
				publish(t, s, at(3, "c"))
				want = append(want, 3)
				if o, err := s.Close(ctx); err != nil || !o.Closed || o.Cursor != 3 {
					t.Fatalf("Close returned %+v, %v", o, err)
				}
			} else {
				publish(t, s, &Publish{Ends: true, Batch: weir.Batch{Events: 1, Payload: []byte("b")}})
				want = append(want, 2)
			}
			if got := <-ended; len(got) != 2 || got[1] != want[1] {
				t.Errorf("a subscription that waited got %v, want %v", got, want)
			}
			check := func(when string, kept int) {
				t.Helper()
				if o, err := s.Object(ctx); err != nil || !o.Closed || o.Cursor != want[1] {
					t.Errorf("%s: the stream is %+v, %v", when, o, err)
				}
				if o, _, known := s.Glance(); known && !o.Closed {
					t.Errorf("%s: Glance returns %+v", when, o)
				}
				if _, err := s.Decide(ctx, &Publish{}); code(err) != weir.StreamClosed {
					t.Errorf("%s: a publish without its body: %v", when, err)
				}
				if needsBody, err := s.Foresee(&Publish{}); needsBody || err != nil {
					t.Errorf("%s: Foresee returned %v, %v for a publish; want false and no error, because only Decide can tell", when, needsBody, err)
				}
				if _, err := s.Publish(ctx, &Publish{}); code(err) != weir.StreamClosed {
					t.Errorf("%s: a publish: %v", when, err)
				}
				if got := endOf(t, s, Oldest); len(got) != kept {
					t.Errorf("%s: a new subscription got %v, want %d batches", when, got, kept)
				}
			}
			check("at once", 2)
			idle(t, h)
			check("after the log was closed", 2)
			again := func() {
				h.Close()
				h = open(t, e, Options{})
				var err error
				if s, err = h.Stream(s.ID); err != nil {
					t.Fatal(err)
				}
			}
			again()
			check("after a restart", 2)
			time.Sleep(700 * time.Second)
			idle(t, h)
			check("after everything was trimmed", 0)
			again()
			check("after a trim and a restart", 0)
			h.Close()
		})
	}
}

// A close that was acknowledged survives every power cut. A close that was not acknowledged may or
// may not be stored. The batches before it are not affected.
func TestCloseSurvivesPowerCut(t *testing.T) {
	work := func(s *Stream, acknowledged *atomic.Uint64) {
		publish(t, s, at(1, "a"))
		acknowledged.Store(1)
		if _, err := s.Close(ctx); err != nil {
			t.Fatal(err)
		}
		acknowledged.Store(2)
	}
	powerCuts(t, 5, work, func(s *Stream, acknowledged uint64) {
		o, err := s.Object(ctx)
		if err != nil || acknowledged > 0 && o.Cursor != 1 || acknowledged > 1 && !o.Closed || o.Closed && o.Cursor != 1 {
			t.Errorf("after a power cut: %+v, %v; of the batch and the close, %d were acknowledged", o, err, acknowledged)
		}
	})
}
