package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// paged is a page that was read to its end.
type paged struct {
	seqs   []weir.Seq
	next   weir.Seq
	cursor weir.Seq
	gap    *Gap
}

// readPage reads a page in runs of at most maxBytes bytes. After each run it calls the function
// afterRun, unless afterRun is nil.
func readPage(t *testing.T, s *Stream, q PageQuery, maxBytes int, afterRun func()) paged {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	if q.Bytes == 0 {
		q.Bytes = 1 << 20
	}
	p, err := s.Page(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var seqs []weir.Seq
	for !p.IsDone() {
		p.Plan(maxBytes)
		before := len(seqs)
		b, err := p.Read(ctx, nil, func(b []byte, batch *weir.Batch) []byte {
			seqs = append(seqs, batch.Seq)
			if want := payloadOf(batch.Seq); string(batch.Payload) != want {
				t.Errorf("batch %d has payload %q, want %q", batch.Seq, batch.Payload, want)
			}
			return append(b, 'x')
		})
		if err != nil {
			t.Fatal(err)
		}
		if seqs = seqs[:before+len(b)]; afterRun != nil {
			afterRun()
		}
	}
	return paged{seqs, p.Next(), p.Cursor(), p.Gap}
}

func payloadOf(seq weir.Seq) string { return fmt.Sprintf("%0*d", 1+int(seq%40), seq) }

// Pages agree with a model, whatever the order in which the batches were stored, however large the
// runs are, and wherever the pages start.
func TestPages(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		rng := rand.New(rand.NewPCG(1, 2))
		for range faulty.Cases(20) {
			s := made(t, h, nil)
			stored := map[weir.Seq]weir.Time{}
			for first := weir.Seq(1); first < 600; first += 60 {
				for _, i := range rng.Perm(60) {
					seq := first + weir.Seq(i)
					if i != 59 && rng.IntN(10) == 0 {
						continue // this sequence stays missing
					}
					publish(t, s, at(seq, payloadOf(seq)))
					stored[seq] = h.now()
					if rng.IntN(3) == 0 {
						<-time.After(time.Duration(rng.IntN(5)) * time.Millisecond)
					}
				}
				<-time.After(10 * time.Second) // the missing sequences are closed
			}
			checkPages(t, s, rng, stored)
		}
	})
}

func checkPages(t *testing.T, s *Stream, rng *rand.Rand, stored map[weir.Seq]weir.Time) {
	t.Helper()
	var all []weir.Seq
	for seq := range stored {
		all = append(all, seq)
	}
	slices.Sort(all)
	check := func(q PageQuery, want []weir.Seq) {
		t.Helper()
		q.Limit = 1 + rng.IntN(700)
		next := all[len(all)-1] + 1
		if len(want) > q.Limit {
			want = want[:q.Limit]
		}
		if len(want) > 0 {
			next = want[len(want)-1] + 1
		}
		got := readPage(t, s, q, 1+rng.IntN(5000), nil)
		if !slices.Equal(got.seqs, want) || got.next != next || got.cursor != all[len(all)-1] || got.gap != nil {
			t.Fatalf("%+v: got %v, next %d, cursor %d, gap %v; want %v, next %d", q, got.seqs, got.next, got.cursor, got.gap, want, next)
		}
	}
	for range 30 {
		from := weir.Seq(rng.IntN(650))
		check(PageQuery{From: After(from)}, all[len(all)-len(above(all, from)):])
		n := 1 + rng.IntN(len(all)+20)
		check(PageQuery{Last: n}, all[max(0, len(all)-n):])
		since := stored[all[rng.IntN(len(all))]] + weir.Time(rng.IntN(3)-1)
		var later []weir.Seq
		for _, seq := range all {
			if stored[seq] >= since {
				later = append(later, seq)
			}
		}
		check(PageQuery{Since: since}, later)
	}
	check(PageQuery{From: Oldest}, all)
	check(PageQuery{From: Head}, nil)
}

func above(all []weir.Seq, from weir.Seq) []weir.Seq {
	i, _ := slices.BinarySearch(all, from+1)
	return all[i:]
}

// headerCounter is an engine that counts the headers that its logs visit.
type headerCounter struct {
	engine.Engine
	visited atomic.Int64
}

type headerCounterLog struct {
	engine.Log
	e *headerCounter
}

func (e *headerCounter) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return headerCounterLog{l, e}, err
}

func (l headerCounterLog) Headers(start weir.Seq, visit func(engine.Header) bool) {
	l.Log.Headers(start, func(h engine.Header) bool { l.e.visited.Add(1); return visit(h) })
}

// Finding the first batch that was stored at a given time or later visits few headers, even if the
// stream has many batches.
func TestSinceIsFoundByBinarySearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &headerCounter{Engine: memory.New()}
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		const n = 20_000
		var middle weir.Time
		for i := range n {
			publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte("x")}})
			<-time.After(time.Millisecond)
			if i == n/2 {
				middle = h.now()
			}
		}
		e.visited.Store(0)
		p, err := s.Page(ctx, PageQuery{Since: middle, Limit: 1, Bytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if p.next != n/2+2 || e.visited.Load() > weir.MaxAhead+100 {
			t.Errorf("found batch %d after %d headers, want %d after at most %d", p.next, e.visited.Load(), n/2+2, weir.MaxAhead+100)
		}
	})
}

// If batches of a page are evicted while the page is read, the page ends before them, and the next
// page reports them. If they are the first of the page, the page itself reports them.
func TestEvictedWhileReadingAPage(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, func(s *Spec) { s.RetentionSeconds = 60 })
		for seq := weir.Seq(1); seq <= 9; seq++ {
			publish(t, s, at(seq, payloadOf(seq)))
			<-time.After(10 * time.Second / 3)
		}
		got := readPage(t, s, PageQuery{From: After(0)}, 1, func() { <-time.After(20 * time.Second) })
		if len(got.seqs) == 0 || got.seqs[0] != 1 || got.next != got.seqs[len(got.seqs)-1]+1 || got.next > 9 || got.gap != nil {
			t.Errorf("got %+v, want a page that ends early", got)
		}
		again := readPage(t, s, PageQuery{From: After(got.next - 1)}, 1, nil)
		if again.gap == nil || again.gap.From != got.next || again.gap.To+1 != 10-weir.Seq(len(again.seqs)) || again.next != 10 {
			t.Errorf("got %+v with gap %v, want the gap from %d", again, again.gap, got.next)
		}
	})
}

// Wait returns when a batch is stored, when the time to wait has passed, when the stream is deleted
// and when the hub stops.
func TestWaitForAPage(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		wait := func(s *Stream, q PageQuery, d time.Duration) (*Page, time.Duration, error) {
			q.Limit, q.Bytes = 10, 1<<20
			p, err := s.Page(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			err = p.Wait(ctx, d)
			p.Close()
			return p, time.Since(begun), err
		}
		if p, took, err := wait(s, PageQuery{From: Head}, 20*time.Second); err != nil || !p.IsEmpty() || took != 20*time.Second || p.Next() != 0 {
			t.Errorf("Wait without a batch: %v after %v, next is %d", err, took, p.Next())
		}
		time.AfterFunc(3*time.Second, func() { publish(t, s, at(0, payloadOf(0))) })
		if p, took, err := wait(s, PageQuery{From: Head}, 20*time.Second); err != nil || p.IsEmpty() || took != 3*time.Second {
			t.Errorf("Wait with a batch: %v after %v", err, took)
		}
		// The wait does not end with a batch below From, or with a batch that is stored before
		// Since.
		time.AfterFunc(time.Second, func() { publish(t, s, at(1, payloadOf(1))) })
		time.AfterFunc(2*time.Second, func() { publish(t, s, at(2, payloadOf(2))) })
		if p, took, err := wait(s, PageQuery{From: After(1)}, 20*time.Second); err != nil || p.IsEmpty() || took != 2*time.Second {
			t.Errorf("Wait from a sequence above the cursor: %v after %v", err, took)
		}
		for d := range 3 {
			time.AfterFunc(time.Duration(1+d)*time.Second, func() { publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte("x")}}) })
		}
		if p, took, err := wait(s, PageQuery{Since: h.now().Add(2500 * time.Millisecond)}, 20*time.Second); err != nil || p.next != 5 || took != 3*time.Second {
			t.Errorf("Wait for a batch since a future time: %v after %v, at sequence %d", err, took, p.next)
		}
		gone := made(t, h, nil)
		time.AfterFunc(time.Second, func() { gone.Delete(ctx) })
		if _, _, err := wait(gone, PageQuery{From: Head}, time.Hour); !errors.Is(err, ErrDeleted) {
			t.Errorf("Wait on a deleted stream: %v", err)
		}
		left, leave := context.WithTimeout(ctx, time.Second)
		defer leave()
		p, _ := s.Page(ctx, PageQuery{From: Head, Limit: 1})
		if err := p.Wait(left, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait of a caller that left: %v", err)
		}
		p.Close()
		time.AfterFunc(time.Second, h.StopSubscriptions)
		if _, _, err := wait(s, PageQuery{From: Head}, time.Hour); !errors.Is(err, ErrStopping) {
			t.Errorf("Wait on a stopping hub: %v", err)
		}
	})
}

// A page ends before an open gap, and its next sequence does not skip the gap.
func TestPageEndsBeforeAnOpenGap(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		for _, seq := range []weir.Seq{1, 2, 5, 6} {
			publish(t, s, at(seq, payloadOf(seq)))
		}
		for _, c := range []struct {
			q    PageQuery
			seqs []weir.Seq
			next weir.Seq
		}{
			{PageQuery{From: Oldest}, []weir.Seq{1, 2}, 3},
			{PageQuery{From: After(2)}, nil, 3},
			{PageQuery{From: After(3)}, nil, 4},
			{PageQuery{From: After(4)}, []weir.Seq{5, 6}, 7},
			{PageQuery{Last: 2}, []weir.Seq{5, 6}, 7},
			{PageQuery{Last: 3}, []weir.Seq{2}, 3},
		} {
			if got := readPage(t, s, c.q, 1000, nil); !slices.Equal(got.seqs, c.seqs) || got.next != c.next || got.cursor != 6 {
				t.Errorf("%+v: got %+v, want %v and next %d", c.q, got, c.seqs, c.next)
			}
		}
	})
}

// A page that was opened before anything was stored starts at sequence 0. When batch 2 is stored,
// sequence 1 is an open gap. So the page stays empty, and its next sequence is still 0.
func TestPageBeforeAnOpenGap(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{GapGrace: time.Hour})
		defer h.Close()
		s := made(t, h, nil)
		p, err := s.Page(ctx, PageQuery{From: Oldest, Limit: 1, Bytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		publish(t, s, at(2, "above a gap"))
		if err := p.refresh(); err != nil || !p.IsEmpty() || p.Next() != 0 {
			t.Errorf("the page is empty: %t, next is %d, %v; want true and 0", p.IsEmpty(), p.Next(), err)
		}
	})
}

// slowToBegin is an engine whose logs take three seconds to catch up.
type slowToBegin struct{ engine.Engine }

type slowLog struct{ engine.Log }

func (slowToBegin) Shared() bool { return true }

func (e slowToBegin) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return slowLog{l}, err
}

func (l slowLog) CatchUp(ctx context.Context) error {
	<-time.After(3 * time.Second)
	return l.Log.CatchUp(ctx)
}

// The time that a page waits for a batch includes the time that the store needs to begin.
func TestWaitOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, slowToBegin{memory.New()}, Options{})
		defer h.Close()
		s := made(t, h, nil)
		page, err := s.Page(ctx, PageQuery{From: Oldest, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer page.Close()
		begun := time.Now()
		if err := page.Wait(ctx, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited != 10*time.Second {
			t.Errorf("waited %v, want 10s", waited)
		}
	})
}
