package hub

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
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

// contiguous returns a publish that must be refused if it would open a gap (D38).
func contiguous(seq weir.Seq) *Publish {
	p := at(seq, fmt.Sprint("batch ", seq))
	p.Contiguous, p.Publisher = true, fmt.Sprint("publisher of ", seq)
	return p
}

// send publishes as the API does: it calls Decide, waits as if it read a body for the given time,
// and calls Publish. Every second request, on average, calls Foresee and Propose instead.
func send(s *Stream, p *Publish, body time.Duration) (weir.Ack, error) {
	defer p.Release()
	later := rand.N(2) == 0
	if later {
		if needsBody, err := s.Foresee(p); err != nil {
			return weir.Ack{}, err
		} else if needsBody {
			<-time.After(body)
			return proposed(s, p)
		}
	}
	if ack, err := s.Decide(ctx, p); ack != nil || err != nil {
		if err != nil {
			return weir.Ack{}, err
		}
		return *ack, nil
	}
	<-time.After(body)
	if later {
		return proposed(s, p)
	}
	return s.Publish(ctx, p)
}

// noGaps fails the test if a sequence from 1 to the cursor is missing in the stream. It returns the
// cursor.
func noGaps(t *testing.T, s *Stream) weir.Seq {
	t.Helper()
	c, err := s.Cursor(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for seq := weir.Seq(1); seq <= c.Cursor; seq++ {
		if b, err := s.Batch(ctx, seq); err != nil || string(b.Payload) != fmt.Sprint("batch ", seq) {
			t.Errorf("reading batch %d of %d: got %q, %v", seq, c.Cursor, b.Payload, err)
		}
	}
	return c.Cursor
}

// Contiguous publishes that arrive in any order, with bodies of any duration, are stored in order,
// and none is refused.
func TestContiguousInAnyOrder(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		const n = 200
		var all sync.WaitGroup
		for _, i := range rand.Perm(n) {
			all.Go(func() {
				<-time.After(rand.N(arrivalPatience / 2))
				ack, err := send(s, contiguous(weir.Seq(i+1)), rand.N(10*time.Second))
				if err != nil || ack.Duplicate || ack.Publisher != fmt.Sprint("publisher of ", i+1) {
					t.Errorf("publish %d: got %+v, %v; want a new batch with its publisher", i+1, ack, err)
				}
			})
		}
		all.Wait()
		if c := noGaps(t, s); c != n {
			t.Errorf("the cursor is %d, want %d", c, n)
		}
		if len(s.traffic.order.turns) != 0 || s.traffic.order.waiting.Load() != 0 {
			t.Errorf("after all publishes, the order still has %d sequences, and %d requests wait", len(s.traffic.order.turns), s.traffic.order.waiting.Load())
		}
		again, err := send(s, contiguous(7), 0)
		if err != nil || !again.Duplicate || again.Publisher != "publisher of 7" {
			t.Errorf("batch 7 published again: got %+v, %v; want a duplicate with its publisher", again, err)
		}
	})
}

// A contiguous publish is refused before its body is read if the batch with the next lower sequence
// does not arrive. If the request for that batch ends without storing it, the contiguous publishes
// above it are refused too. No refused publish leaves a gap.
func TestContiguousRefused(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		for _, far := range []weir.Seq{2, 1024, 1025, 5000} {
			p := contiguous(far)
			began := time.Now()
			if ack, err := s.Decide(ctx, p); ack != nil || code(err) != weir.SequenceNotNext {
				t.Errorf("decide on %d: got %v, %v; want sequence_not_next", far, ack, err)
			}
			p.Release()
			if took := time.Since(began); took > localPatience+arrivalPatience {
				t.Errorf("the refusal of %d took %v, longer than localPatience and arrivalPatience together", far, took)
			}
		}
		first := contiguous(1)
		if ack, err := s.Decide(ctx, first); ack != nil || err != nil {
			t.Fatalf("decide on 1: got %v, %v; want neither an acknowledgement nor an error", ack, err)
		}
		var all sync.WaitGroup
		for seq := weir.Seq(2); seq < 30; seq++ {
			all.Go(func() {
				if ack, err := send(s, contiguous(seq), 0); code(err) != weir.SequenceNotNext {
					t.Errorf("publish %d: %+v, %v; want %s", seq, ack, err, weir.SequenceNotNext)
				}
			})
		}
		synctest.Wait()
		first.Release() // as if the body never arrived
		all.Wait()
		if c := noGaps(t, s); c != 0 {
			t.Errorf("the cursor is %d, want 0 because every publish was refused", c)
		}
	})
}

// A contiguous publish waits for the batch below it, even if the client has to send that batch
// again, and even if that batch is not published as contiguous. The contiguous publish stops
// waiting when the stream is deleted.
func TestContiguousWaits(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		lost := contiguous(1)
		if _, err := s.Decide(ctx, lost); err != nil {
			t.Fatal(err)
		}
		stored := make(chan error, 3)
		for _, seq := range []weir.Seq{2, 3, 5} {
			go func() {
				_, err := send(s, contiguous(seq), 0)
				stored <- err
			}()
		}
		synctest.Wait()
		lost.Release()
		if _, err := send(s, contiguous(1), 0); err != nil {
			t.Fatal(err)
		}
		publish(t, s, at(4, "batch 4"))
		for range 3 {
			if err := <-stored; err != nil {
				t.Error(err)
			}
		}
		if c := noGaps(t, s); c != 5 {
			t.Errorf("the cursor is %d, want 5", c)
		}
		began := time.Now()
		go func() {
			_, err := send(s, contiguous(8), 0)
			stored <- err
		}()
		synctest.Wait()
		if err := s.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-stored; code(err) != weir.StreamNotFound || time.Since(began) > 0 {
			t.Errorf("publish to a stream that was deleted meanwhile: got %v after %v, want StreamNotFound at once", err, time.Since(began))
		}
	})
}

// failing is an engine whose logs refuse the entries for which the function fails returns an error.
type failing struct {
	engine.Engine
	fails func(e *engine.Entry) error
}

type failingLog struct {
	engine.Log
	fails func(e *engine.Entry) error
}

func (e *failing) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &failingLog{l, e.fails}, err
}

func (l *failingLog) Append(ctx context.Context, e *engine.Entry) error {
	if err := l.fails(e); err != nil {
		e.Proposer.(engine.Placeable).Placed() // the entry was in the log's queue before the write failed
		return err
	}
	return l.Log.Append(ctx, e)
}

func (l *failingLog) Propose(e *engine.Entry, done func(error)) {
	if err := l.fails(e); err != nil {
		e.Proposer.(engine.Placeable).Placed()
		done(err)
		return
	}
	l.Log.Propose(e, done)
}

// If storing one batch fails, none of the contiguous batches in flight above it is stored.
func TestContiguousAboveAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		h := open(t, &failing{memory.New(), func(e *engine.Entry) error {
			if string(e.Payload) == "batch 5" && tries.Add(1) == 1 {
				return engine.ErrFull
			}
			return nil
		}}, Options{})
		defer h.Close()
		s := made(t, h, nil)
		const n = 20
		var all sync.WaitGroup
		results := make([]error, n+1)
		for seq := weir.Seq(1); seq <= n; seq++ {
			all.Go(func() { _, results[seq] = send(s, contiguous(seq), 0) })
		}
		all.Wait()
		for seq, err := range results[1:] {
			want := [...]weir.Code{"", weir.StorageUnavailable, weir.SequenceNotNext}[1+cmp.Compare(seq+1, 5)]
			if code(err) != want {
				t.Errorf("publish %d: %v, want code %q", seq+1, err, want)
			}
		}
		if c := noGaps(t, s); c != 4 {
			t.Errorf("the cursor is %d, want 4", c)
		}
	})
}

// After a power cut at any moment, a stream that has only contiguous publishes has no gap and holds
// every acknowledged batch.
func TestContiguousAfterACrash(t *testing.T) {
	type image struct {
		at    string
		fs    *faulty.FS
		acked int64
	}
	var images []image
	var id weir.StreamID
	openJournal := func(fs *faulty.FS) *journal.Journal {
		t.Helper()
		j, err := journal.Open(fs, journal.Options{SegmentSize: 128 << 10})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		j := openJournal(fs)
		defer j.Close()
		h := open(t, j, Options{})
		defer h.Close()
		s := made(t, h, nil)
		id = s.ID
		var acked atomic.Int64
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(38, 38))
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind != faulty.Write && c.Kind != faulty.Sync {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			for _, loss := range faulty.Losses {
				images = append(images, image{fmt.Sprintf("%v %d of %s, %v", c.Kind, c.N, c.Name, loss), fs.Crash(loss, rng), acked.Load()})
			}
			return nil
		})
		var all sync.WaitGroup
		for _, i := range rand.Perm(80) {
			all.Go(func() {
				<-time.After(rand.N(arrivalPatience / 2))
				// Later bodies take longer. Otherwise all batches would wait for the first one and
				// be written together.
				ack, err := send(s, contiguous(weir.Seq(i+1)), time.Duration(i/8)*100*time.Millisecond+rand.N(100*time.Millisecond))
				if err != nil {
					t.Error(err)
				}
				for seen := acked.Load(); int64(ack.Seq) > seen && !acked.CompareAndSwap(seen, int64(ack.Seq)); seen = acked.Load() {
				}
			})
		}
		all.Wait()
		fs.OnCall(nil)
	})
	partial := 0
	for _, im := range images {
		synctest.Test(t, func(t *testing.T) {
			j := openJournal(im.fs)
			defer j.Close()
			h := open(t, j, Options{})
			defer h.Close()
			cursor := noGaps(t, find(t, h, id))
			if int64(cursor) < im.acked {
				t.Errorf("the cursor is %d, but %d was acknowledged", cursor, im.acked)
			}
			if cursor > 0 && cursor < 80 {
				partial++
			}
		})
		if t.Failed() {
			t.Fatalf("the crash was at %s", im.at)
		}
	}
	if partial < 20 {
		t.Errorf("only %d of %d crashes happened between the first batch and the last, want 20 or more", partial, len(images))
	}
}

// The batches of one publisher, all of them contiguous, are sent to random nodes in no fixed order.
// A publish that is refused with SequenceNotNext is sent again. All batches are stored, and no node
// ever closes a gap.
func TestContiguousOnSeveralNodes(t *testing.T) {
	server := shared(t)
	hubs := []*Hub{node(t, server, Options{}), node(t, server, Options{}), node(t, server, Options{})}
	id := made(t, hubs[0], nil).ID
	var streams []*Stream
	for _, h := range hubs {
		streams = append(streams, find(t, h, id))
	}
	const n = 150
	var all sync.WaitGroup
	var next atomic.Int64
	for range 32 {
		all.Go(func() {
			for seq := next.Add(1); seq <= n; seq = next.Add(1) {
				for {
					ack, err := send(streams[rand.IntN(len(streams))], contiguous(weir.Seq(seq)), 0)
					if err == nil && ack.Publisher == fmt.Sprint("publisher of ", seq) {
						break
					}
					if code(err) != weir.SequenceNotNext {
						t.Errorf("publish %d: %+v, %v", seq, ack, err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	for i, s := range streams {
		if c := noGaps(t, s); c != n {
			t.Errorf("node %d: the cursor is %d, want %d", i, c, n)
		}
		if closed := hubs[i].counts.gaps.Load(); closed != 0 {
			t.Errorf("node %d closed %d gaps", i, closed)
		}
	}
}

// While the body of a contiguous publish is received, its gap stays open, even if the batch below was
// still missing when the request arrived, and another publisher has stored a batch above (D4).
func TestContiguousBodyKeepsItsGapOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memory.New(), Options{})
		defer h.Close()
		s := made(t, h, nil)
		var all sync.WaitGroup
		for seq, body := range []time.Duration{1: time.Second, 2: 10 * time.Second} {
			if body == 0 {
				continue
			}
			all.Go(func() {
				if _, err := send(s, contiguous(weir.Seq(seq)), body); err != nil {
					t.Errorf("publish %d, whose body takes %v: %v", seq, body, err)
				}
			})
			synctest.Wait()
		}
		publish(t, s, at(10, "x"))
		all.Wait()
	})
}
