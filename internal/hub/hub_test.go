package hub

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
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

var ctx = context.Background()

// testFrame encodes a batch as its sequence, the length of its payload, and the payload.
func testFrame(b []byte, _ weir.Mode, batch *weir.Batch) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(batch.Seq))
	b = binary.BigEndian.AppendUint32(b, uint32(len(batch.Payload)))
	return append(b, batch.Payload...)
}

func open(t *testing.T, e engine.Engine, o Options) *Hub {
	t.Helper()
	o.Frame = testFrame
	h, err := Open(ctx, e, o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// made creates a stream with a long retention and a large maximum size. The function change may set
// other values.
func made(t *testing.T, h *Hub, change func(*Spec)) *Stream {
	t.Helper()
	spec := Spec{Project: "p", Name: "n", RetentionSeconds: 3600, MaxBytes: 1 << 30, Mode: weir.Raw}
	if change != nil {
		change(&spec)
	}
	o, err := h.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Stream(o.ID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(seq weir.Seq, payload string) *Publish {
	return &Publish{Chosen: true, Seq: seq, Batch: weir.Batch{Events: 1, Payload: []byte(payload)}}
}

func publish(t *testing.T, s *Stream, p *Publish) weir.Ack {
	t.Helper()
	ack, err := s.Publish(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

func code(err error) weir.Code {
	var e *weir.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// engines runs a test with fake time, once on the memory engine and once on the journal.
func engines(t *testing.T, test func(t *testing.T, e engine.Engine)) {
	for name, make := range map[string]func() engine.Engine{
		"memory": func() engine.Engine { return memory.New() },
		"journal": func() engine.Engine {
			j, err := journal.Open(faulty.New(), journal.Options{SegmentSize: 256 << 10})
			if err != nil {
				t.Fatal(err)
			}
			return j
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := make()
				test(t, e)
				e.Close()
			})
		})
	}
}

// collector is a subscriber that checks that it receives batches once and in order, and that a
// reported gap starts at the next sequence.
type collector struct {
	next weir.Seq
	got  map[weir.Seq]string
	gaps []Gap
	from From
}

// follow subscribes again and again until it has received everything up to the sequence last. For
// each subscription it calls the function cut, which returns after how many events the next
// subscription replaces it.
func (c *collector) follow(s *Stream, last weir.Seq, cut func() int) error {
	for c.next <= last {
		sub, err := s.Subscribe(ctx, c.from)
		if err != nil {
			return err
		}
		for n := cut(); n > 0 && c.next <= last; n-- {
			e, err := sub.Next(ctx, time.Hour)
			if err != nil {
				sub.Close()
				return err
			}
			if err := c.take(e); err != nil {
				sub.Close()
				return err
			}
		}
		sub.Close()
		if c.next > 0 {
			c.from = After(c.next - 1)
		}
	}
	return nil
}

func (c *collector) take(e Event) error {
	if e.Gap != nil {
		if e.Gap.From != c.next {
			return fmt.Errorf("got gap %v, want a gap that starts at %d", *e.Gap, c.next)
		}
		c.gaps = append(c.gaps, *e.Gap)
		c.next = e.Gap.To + 1
	}
	for seq, payload := range batchesOf(e) {
		if seq < c.next {
			return fmt.Errorf("got batch %d, want %d or higher", seq, c.next)
		}
		c.got[seq] = payload
		c.next = seq + 1
	}
	return nil
}

// batchesOf decodes the frames that testFrame encoded.
func batchesOf(e Event) iter.Seq2[weir.Seq, string] {
	return func(yield func(weir.Seq, string) bool) {
		for f := slices.Concat(e.Frames...); len(f) > 0; {
			seq, n := weir.Seq(binary.BigEndian.Uint64(f)), binary.BigEndian.Uint32(f[8:])
			if !yield(seq, string(f[12:12+n])) {
				return
			}
			f = f[12+n:]
		}
	}
}

// Publishers keep 200 batches in flight in random order and send each one up to three times, while
// subscribers disconnect and resume at random. Every subscriber gets exactly the stored batches,
// once and in order.
func TestExactlyOnce(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{TailBytes: 8 << 10})
		s := made(t, h, nil)
		const last = 3000
		var acked sync.Map
		var work sync.WaitGroup
		subscribers := make([]*collector, 6)
		for i := range subscribers {
			c := &collector{next: 1, got: map[weir.Seq]string{}, from: After(0)}
			subscribers[i] = c
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			work.Go(func() {
				if err := c.follow(s, last, func() int { return 1 + rng.IntN(20) }); err != nil {
					t.Error(err)
				}
			})
		}
		rng := rand.New(rand.NewPCG(9, 9))
		slots := make(chan struct{}, 200)
		for from := weir.Seq(1); from <= last; from += 100 {
			for _, i := range rng.Perm(100) {
				seq := from + weir.Seq(i)
				slots <- struct{}{}
				sends := 1 + rng.IntN(3)
				work.Go(func() {
					defer func() { <-slots }()
					for n := range sends {
						ack, err := s.Publish(ctx, at(seq, fmt.Sprintf("%d by %d", seq, n)))
						if err != nil || ack.Seq != seq {
							t.Errorf("publishing %d: %v, %v", seq, ack, err)
							return
						}
						if !ack.Duplicate {
							acked.Store(seq, fmt.Sprintf("%d by %d", seq, n))
						}
					}
				})
			}
		}
		work.Wait()
		for i, c := range subscribers {
			if len(c.got) != last || len(c.gaps) > 0 {
				t.Errorf("subscriber %d got %d batches and the gaps %v", i, len(c.got), c.gaps)
			}
			for seq, payload := range c.got {
				if want, _ := acked.Load(seq); want != payload {
					t.Errorf("subscriber %d got the payload %q under sequence %d, want %q", i, payload, seq, want)
				}
			}
		}
		h.Close()
	})
}

// A subscription waits at an open gap and continues when the gap's grace period has ended (D4).
func TestGapCloses(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, nil)
		sub, err := s.Subscribe(ctx, Oldest)
		if err != nil {
			t.Fatal(err)
		}
		publish(t, s, at(1, "a"))
		publish(t, s, at(4, "d"))
		start := time.Now()
		for _, want := range []weir.Seq{1, 4} {
			ev, err := sub.Next(ctx, time.Hour)
			if err != nil || len(ev.Frames) != 1 || weir.Seq(binary.BigEndian.Uint64(ev.Frames[0])) != want {
				t.Fatalf("got the event %v, %v; want batch %d", ev, err, want)
			}
		}
		if d := time.Since(start); d < 2*time.Second || d > 2100*time.Millisecond {
			t.Errorf("waited %v for the gap, want 2 s", d)
		}
		if _, err := s.Publish(ctx, at(2, "late")); code(err) != weir.InvalidSequence {
			t.Errorf("publishing into a closed gap: %v; want a refusal", err)
		}
		if ack, err := s.Decide(ctx, at(3, "")); ack != nil || code(err) != weir.InvalidSequence {
			t.Errorf("Decide for a sequence in a closed gap: %v, %v; want a refusal", ack, err)
		}
		sub.Close()
		h.Close()
	})
}

// Batches are evicted on time, subscribers get a gap for them, and their space is freed (D12, D16).
func TestRetention(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, func(s *Spec) { s.RetentionSeconds = 60 })
		publish(t, s, at(1, "one"))
		time.Sleep(30 * time.Second)
		publish(t, s, at(2, "two"))
		time.Sleep(30*time.Second - time.Millisecond)
		if b, err := s.Batch(ctx, 1); err != nil || string(b.Payload) != "one" {
			t.Errorf("reading the batch just before it expires: %v, %v", b, err)
		}
		time.Sleep(time.Millisecond)
		if _, err := s.Batch(ctx, 1); code(err) != weir.StreamNotFound {
			t.Errorf("reading the batch just after it expired: %v", err)
		}
		if o, _ := s.Object(ctx); o.BytesStored != 3 || o.Cursor != 2 {
			t.Errorf("after the first batch expired, the stream is %+v", o)
		}
		sub, err := s.Subscribe(ctx, After(0))
		if err != nil {
			t.Fatal(err)
		}
		if ev, err := sub.Next(ctx, time.Hour); err != nil || ev.Gap == nil || *ev.Gap != (Gap{From: 1, To: 1}) {
			t.Errorf("the subscriber got %v, %v; want a gap from 1 to 1", ev, err)
		}
		sub.Close()
		time.Sleep(time.Hour) // the hub must evict although no request arrives
		if o, _ := s.Object(ctx); o.BytesStored != 0 || o.Cursor != 2 {
			t.Errorf("after all batches expired, the stream is %+v", o)
		}
		h.Close()
		again := open(t, e, Options{})
		s, err = again.Stream(s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if o, _ := s.Object(ctx); o.BytesStored != 0 || o.Cursor != 2 {
			t.Errorf("after a restart, the stream is %+v", o)
		}
		if ack := publish(t, s, &Publish{Batch: weir.Batch{Events: 1}}); ack.Seq != 3 {
			t.Errorf("the first batch after the restart got %+v, want sequence 3", ack)
		}
		again.Close()
	})
}

// A publish that repeats an idempotency key gets the acknowledgement of the first publish with that
// key, also if the two are concurrent or the hub was restarted in between (D25).
func TestIdempotencyKeys(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, nil)
		keyed := func() *Publish { return &Publish{Key: "k", Batch: weir.Batch{Events: 7, Payload: []byte("x")}} }
		var stored atomic.Int32
		var work sync.WaitGroup
		for range 50 {
			work.Go(func() {
				ack, err := s.Publish(ctx, keyed())
				if err != nil || ack.Seq != 1 || ack.Accepted != 7 {
					t.Error(ack, err)
				}
				if !ack.Duplicate {
					stored.Add(1)
				}
			})
		}
		work.Wait()
		if stored.Load() != 1 {
			t.Errorf("%d batches were stored, want 1", stored.Load())
		}
		h.Close()
		h = open(t, e, Options{})
		s, _ = h.Stream(s.ID)
		if ack, err := s.Decide(ctx, keyed()); err != nil || ack == nil || !ack.Duplicate || ack.Seq != 1 {
			t.Error(ack, err)
		}
		time.Sleep(24 * time.Hour)
		h.Close()
	})
}

// Deleting a stream ends its subscriptions. From then on its id can be reused, and the stream does
// not count towards the project's limit (D31).
func TestDelete(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{StreamsPerProject: 1})
		s := made(t, h, nil)
		publish(t, s, at(1, "x"))
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Create(ctx, Spec{Project: "p"}); code(err) != weir.StreamLimitReached {
			t.Errorf("creating a stream beyond the limit: %v", err)
		}
		if err := s.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := sub.Next(ctx, time.Hour); !errors.Is(err, ErrDeleted) {
			t.Errorf("the subscriber of the deleted stream got %v", err)
		}
		sub.Close()
		if _, err := s.Publish(ctx, at(2, "y")); code(err) != weir.StreamNotFound {
			t.Errorf("publish to the deleted stream: %v", err)
		}
		if err := s.Delete(ctx); code(err) != weir.StreamNotFound {
			t.Errorf("delete again: %v", err)
		}
		if _, err := h.Stream(s.ID); code(err) != weir.StreamNotFound {
			t.Errorf("find the deleted stream: %v", err)
		}
		again := made(t, h, func(spec *Spec) { spec.ID = s.ID })
		if o, err := again.Object(ctx); err != nil || o.Cursor != 0 {
			t.Errorf("the stream that reuses the id: %+v, %v", o, err)
		}
		h.Close()
	})
}

// The hub closes the feed (the open log and its state) of an idle stream. The next use reopens the
// feed with the same state.
func TestIdleFeedIsClosed(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, nil)
		for i := range 10 {
			publish(t, s, at(weir.Seq(i), "abc"))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		s.mu.Lock()
		closed := s.traffic.open() == nil
		s.mu.Unlock()
		if !closed {
			t.Error("the feed is still open")
		}
		if o, err := s.Object(ctx); err != nil || o.Cursor != 9 || o.BytesStored != 30 {
			t.Errorf("the reopened stream is %+v, %v", o, err)
		}
		if ack := publish(t, s, at(9, "again")); !ack.Duplicate || ack.Cursor != 9 {
			t.Errorf("publishing 9 again got %+v, want a duplicate", ack)
		}
		h.Close()
	})
}

// StopSubscriptions ends only the subscriptions. After Close, publishes fail too.
func TestStopping(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, nil)
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Second)
			h.StopSubscriptions()
		}()
		if _, err := sub.Next(ctx, time.Hour); !errors.Is(err, ErrStopping) {
			t.Errorf("the subscription ended with %v, want ErrStopping", err)
		}
		sub.Close()
		publish(t, s, at(1, "still"))
		h.Close()
		if _, err := s.Publish(ctx, at(2, "no")); code(err) != weir.StorageUnavailable {
			t.Errorf("publishing after Close: %v", err)
		}
	})
}

// Next returns an empty event if no batch arrives within the given time.
func TestHeartbeat(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, nil)
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 3 {
			if ev, err := sub.Next(ctx, 15*time.Second); err != nil || ev.Frames != nil || ev.Gap != nil {
				t.Errorf("Next returned %v, %v; want an empty event", ev, err)
			}
		}
		if d := time.Since(start); d != 45*time.Second {
			t.Errorf("three empty events took %v, want 45 s", d)
		}
		sub.Close()
		h.Close()
	})
}

// List returns pages from the newest to the oldest stream, even if streams are created between two
// pages (D27).
func TestList(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		var want []weir.StreamID
		for range 25 {
			want = append([]weir.StreamID{made(t, h, nil).ID}, want...)
		}
		made(t, h, func(s *Spec) { s.Project = "other" })
		var got []weir.StreamID
		before, more := uint64(0), true
		for more {
			var page []weir.Stream
			var err error
			page, before, more, err = h.List(ctx, "p", before, 10, func(weir.StreamID) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page {
				got = append(got, s.ID)
			}
			made(t, h, nil)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
		h.Close()
	})
}
