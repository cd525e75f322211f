package hub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
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

// result holds the arguments of a call of Published.
type result struct {
	ack weir.Ack
	err error
}

// inbox is an Outcome that passes the result on.
type inbox chan result

func (c inbox) Published(ack weir.Ack, err error) { c <- result{ack, err} }

// proposed calls Propose and waits for the outcome.
func proposed(s *Stream, p *Publish) (weir.Ack, error) {
	c := make(inbox, 1)
	s.Propose(p, c)
	Flush(s.hub)
	r := <-c
	return r.ack, r.err
}

// Publish and Propose give the same answers to the same publishes.
func TestProposeMatchesPublish(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		streams := [2]*Stream{}
		for i := range streams {
			streams[i] = made(t, h, func(s *Spec) { s.MaxBytes = 1 << 20 })
		}
		large := make([]byte, 2<<20)
		script := []Publish{
			{Batch: weir.Batch{Events: 1, Payload: []byte("first")}},
			{Chosen: true, Seq: 1, Batch: weir.Batch{Events: 2, Payload: []byte("duplicate")}},
			{Key: "key", Batch: weir.Batch{Events: 3, Payload: []byte("keyed")}},
			{Key: "key", Batch: weir.Batch{Events: 4, Payload: []byte("again")}},
			{Chosen: true, Seq: 3, Contiguous: true, Publisher: "p", Batch: weir.Batch{Events: 5, Payload: []byte("next")}},
			{Chosen: true, Seq: 3, Contiguous: true, Publisher: "q", Batch: weir.Batch{Events: 6, Payload: []byte("duplicate")}},
			{Chosen: true, Seq: 9, Contiguous: true, Batch: weir.Batch{Events: 7, Payload: []byte("not next")}},
			{Chosen: true, Seq: 5000, Batch: weir.Batch{Events: 8, Payload: []byte("too far")}},
			{Chosen: true, Seq: 6, Batch: weir.Batch{Events: 9, Payload: []byte("opens a gap")}},
			{Chosen: true, Seq: 4, Batch: weir.Batch{Events: 10, Payload: []byte("late")}},
			{Batch: weir.Batch{Events: 11, Payload: large}},
			{Batch: weir.Batch{Events: 12, Payload: []byte("last")}},
		}
		for i, p := range script {
			q := p
			want, wantErr := streams[0].Publish(ctx, &p)
			got, gotErr := proposed(streams[1], &q)
			want.StreamID, got.StreamID = "", ""
			if want != got || code(wantErr) != code(gotErr) || p.settled != q.settled {
				t.Errorf("publish %d: Publish returned %+v, %v; Propose reported %+v, %v", i, want, wantErr, got, gotErr)
			}
		}
	})
}

// The hub says that it no longer uses the payload of a stored batch, unless subscribers get it from
// memory.
func TestFree(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish := func(key string) *Publish {
			p := &Publish{Key: key, Batch: weir.Batch{Events: 1, Payload: []byte("payload")}}
			if _, err := proposed(s, p); err != nil {
				t.Fatal(err)
			}
			return p
		}
		if !publish("a").Free {
			t.Error("the payload is in use, although the stream has no subscribers")
		}
		if publish("a").Free {
			t.Error("a duplicate was stored")
		}
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		if publish("").Free {
			t.Error("the payload is free, although a subscriber is about to get it")
		}
	})
}

// heldBack is an engine whose proposals reach the log only when the test calls the method release.
type heldBack struct {
	engine.Engine
	mu   sync.Mutex
	held []func()
}

type heldLog struct {
	engine.Log
	e *heldBack
}

func (e *heldBack) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &heldLog{l, e}, err
}

func (l *heldLog) Propose(e *engine.Entry, done func(error)) {
	e.Proposer.(engine.Placeable).Placed()
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	l.e.held = append(l.e.held, func() { l.Log.Propose(e, done) })
}

func (e *heldBack) release() int {
	e.mu.Lock()
	held := e.held
	e.held = nil
	e.mu.Unlock()
	for _, f := range held {
		f()
	}
	return len(held)
}

// A publish that waits for the disk occupies no goroutine.
func TestProposeNeedsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &heldBack{Engine: memory.New()}
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "opens the log"))
		const n = 1000
		results := make(inbox, n)
		before := runtime.NumGoroutine()
		for i := range n {
			p := at(weir.Seq(i+2), fmt.Sprint("batch ", i))
			if i >= n/2 {
				p.Contiguous = true
				p.enter(s.traffic.open())
			}
			if i == n/2 { // the entry of the batch below is in the log's queue
				s.traffic.open().way.order.enter(p.Seq - 1)
				s.traffic.open().way.order.queue(p.Seq - 1)
			}
			s.Propose(p, results)
		}
		if more := runtime.NumGoroutine() - before; more > 0 {
			t.Errorf("%d publishes in flight started %d goroutines, want 0", n, more)
		}
		if len(results) > 0 {
			t.Errorf("%d outcomes were reported before the entries were stored", len(results))
		}
		e.release()
		for range n {
			if r := <-results; r.err != nil {
				t.Error(r.err)
			}
		}
	})
}

// Like Publish, Propose reports the errors of the store, and that the stream was deleted meanwhile.
func TestProposeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &heldBack{Engine: memory.New()}
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "opens the log"))
		c := make(inbox, 1)
		s.Propose(at(2, "in flight"), c)
		if err := s.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		e.release()
		if r := <-c; code(r.err) != weir.StreamNotFound {
			t.Errorf("a publish to a stream that was deleted meanwhile: %+v, %v", r.ack, r.err)
		}
		if _, err := proposed(s, at(3, "too late")); code(err) != weir.StreamNotFound {
			t.Errorf("a publish to a deleted stream: %v", err)
		}
		f := &fullProposals{Engine: memory.New(), err: engine.ErrFull}
		h2 := open(t, f, Options{})
		defer h2.Close()
		s = made(t, h2, nil)
		publish(t, s, at(1, "opens the log"))
		if _, err := proposed(s, at(2, "no space")); code(err) != weir.StorageUnavailable {
			t.Errorf("a publish to a full store: %v", err)
		}
		f.err = errors.New("other")
		if _, err := proposed(s, at(2, "fault")); !errors.Is(err, f.err) {
			t.Errorf("a publish to a store with a fault: %v", err)
		}
	})
}

// The error of a publish says whether the outcome is unknown, and whether sending the batch again
// may store it twice (D5). Publish and Propose return the same error.
func TestUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fullProposals{Engine: memory.New()}
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "opens the log"))
		for _, c := range []struct {
			fault   error
			of      Publish
			unknown bool
			twice   bool
		}{
			{engine.ErrUnavailable, Publish{}, true, true},
			{engine.ErrUnavailable, Publish{Key: "k"}, true, false},
			{engine.ErrUnavailable, Publish{Chosen: true, Seq: 2}, true, false},
			{engine.ErrUnavailable, Publish{Writer: &Writer{Producer: "p"}}, true, false},
			{engine.ErrReadOnly, Publish{}, true, true},
			{engine.ErrReadOnly, Publish{Key: "k"}, true, false},
			{engine.ErrFull, Publish{}, false, false},
			{engine.ErrClock, Publish{}, false, false},
			{engine.ErrBehind, Publish{}, false, false},
			{engine.ErrClosed, Publish{}, false, false},
		} {
			e.err, e.appends = c.fault, true
			first, second := c.of, c.of
			_, err := s.Publish(ctx, &first)
			_, other := proposed(s, &second)
			var known *weir.Error
			if !errors.As(err, &known) || other == nil || err.Error() != other.Error() {
				t.Fatalf("%v, %+v: Publish returned %v, Propose reported %v", c.fault, c.of, err, other)
			}
			if known.Code != weir.StorageUnavailable || known.Unknown != c.unknown || strings.Contains(known.Message, "twice") != c.twice {
				t.Errorf("%v, %+v: got %+v, want unknown %v, twice %v", c.fault, c.of, known, c.unknown, c.twice)
			}
		}
	})
}

// fullProposals is an engine that refuses every proposal, and every append if the field appends is
// set.
type fullProposals struct {
	engine.Engine
	err     error
	appends bool
}

type fullProposalsLog struct {
	engine.Log
	e *fullProposals
}

func (e *fullProposals) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &fullProposalsLog{l, e}, err
}

func (l *fullProposalsLog) Propose(_ *engine.Entry, done func(error)) { done(l.e.err) }

func (l *fullProposalsLog) Append(ctx context.Context, e *engine.Entry) error {
	if l.e.appends {
		return l.e.err
	}
	return l.Log.Append(ctx, e)
}

// If the log of the stream is closed, Propose opens it.
func TestProposeOpensTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memory.New(), Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "a"))
		time.Sleep(3 * idleFor)
		if s.openFeed() != nil {
			t.Fatal("the log is still open")
		}
		if needsBody, err := s.Foresee(at(2, "b")); needsBody || err != nil {
			t.Errorf("Foresee returned %v, %v for a stream whose log is closed", needsBody, err)
		}
		if ack, err := proposed(s, at(2, "b")); err != nil || ack.Cursor != 2 {
			t.Errorf("got %+v, %v", ack, err)
		}
	})
}

// onJournal returns an empty journal, and closes it at the end of the test.
func onJournal(t *testing.T) *journal.Journal {
	t.Helper()
	j, err := journal.Open(faulty.New(), journal.Options{SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// openings is a journal that counts the calls of Open.
type openings struct {
	*journal.Journal
	n atomic.Int64
}

func (o *openings) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	o.n.Add(1)
	return o.Journal.Open(ctx, id, j)
}

// If the log of the stream is closed and can be opened without reading the disk, Foresee and Propose
// open it at once, and not in another goroutine.
func TestProposeOpensTheLogNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &openings{Journal: onJournal(t)}
		h := open(t, e, Options{})
		defer h.Close()
		results := make(inbox, 1)
		for _, foresee := range []bool{false, true} {
			s := made(t, h, nil)
			for seq := range weir.Seq(3) {
				synctest.Wait()
				if foresee {
					if needsBody, err := s.Foresee(at(seq+1, "b")); !needsBody || err != nil {
						t.Errorf("Foresee returned %v, %v", needsBody, err)
					}
				}
				s.Propose(at(seq+1, "b"), results)
				if e.n.Load() > 0 || s.openFeed() == nil {
					t.Errorf("batch %d: %d logs were opened by waiting, and the log is open: %v", seq+1, e.n.Load(), s.openFeed() != nil)
				}
				Flush(h)
				if r := <-results; r.err != nil || r.ack.Cursor != seq+1 {
					t.Errorf("batch %d: %+v, %v", seq+1, r.ack, r.err)
				}
				time.Sleep(3 * idleFor)
				if s.openFeed() != nil {
					t.Fatal("the log is still open")
				}
			}
		}
	})
}

// failingOpen is an engine whose OpenNow panics.
type failingOpen struct{ engine.Engine }

func (failingOpen) Flush()                                        {}
func (failingOpen) OpenNow(engine.LogID, engine.Judge) engine.Log { panic("planted") }

// A panic while a log is opened can be recovered, and the stream stays usable.
func TestPanicInOpenNow(t *testing.T) {
	h := open(t, failingOpen{memory.New()}, Options{})
	defer h.Close()
	s := made(t, h, nil)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		s.Foresee(at(1, "x"))
	}()
	publish(t, s, at(1, "x"))
}

// The memory of a stream is measured again after its log was opened, also if only a subscription uses
// the stream.
func TestMemoryOfASubscribedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, onJournal(t), Options{})
		defer h.Close()
		s := made(t, h, nil)
		for i := range 500 {
			publish(t, s, keyed(i+1))
		}
		time.Sleep(3 * sweepEvery)
		open := h.Stats().IndexBytes
		time.Sleep(3 * idleFor)
		if closed := h.Stats().IndexBytes; closed >= open {
			t.Errorf("%d bytes with an open log, and %d with a closed one", open, closed)
		}
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		time.Sleep(3 * sweepEvery)
		if again := h.Stats().IndexBytes; again < open {
			t.Errorf("%d bytes with a subscriber, want at least %d", again, open)
		}
	})
}
