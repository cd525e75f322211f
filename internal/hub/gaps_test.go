package hub

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/stream"
)

// A gap never closes while the body of a batch for the gap is being received, however slowly the
// body arrives. It makes no difference whether the request arrived before or after the batch above
// the gap (D4).
func TestGapStaysOpenUnderABody(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "a"))
		early, late := at(2, "b"), at(4, "d")
		decide := func(p *Publish) {
			t.Helper()
			if ack, err := s.Decide(ctx, p); ack != nil || err != nil {
				t.Fatalf("decide on %d: got acknowledgement %v and error %v, want neither", p.Seq, ack, err)
			}
		}
		decide(early)
		publish(t, s, at(3, "c"))
		publish(t, s, at(6, "f"))
		decide(late)
		<-time.After(10 * time.Minute)
		for _, p := range []*Publish{early, late} {
			publish(t, s, p)
			p.Release()
			p.Release() // a second call does nothing
		}
		// Sequence 5 lies above the two sequences for which requests were being received, so its
		// grace (the time in which it can be filled) was paused as well. The whole grace runs from
		// now.
		<-time.After(2*time.Second + foreignDelay)
		if _, err := s.Publish(ctx, at(5, "e")); code(err) != weir.InvalidSequence {
			t.Errorf("sequence 5, two seconds later: %v, want %s", err, weir.InvalidSequence)
		}
		c := collector{got: map[weir.Seq]string{}, from: Oldest}
		if err := c.follow(s, 6, func() int { return 1 << 20 }); err != nil || len(c.got) != 5 {
			t.Errorf("the subscriber got %v, %v; want all batches but 5", c.got, err)
		}
		if len(s.traffic.holds.seqs) != 0 {
			t.Errorf("sequences %v are still held after Release", s.traffic.holds.seqs)
		}
	})
}

// A publish that Foresee cannot decide on is passed to Decide. It holds its sequence once, so that one
// Release ends the hold: the gap would stay open for good otherwise (D4).
func TestForeseenPublishHoldsOnce(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "a"))
		p := at(3, "c")
		p.Contiguous = true
		if needsBody, err := s.Foresee(p); needsBody || err != nil {
			t.Fatalf("Foresee returned %v, %v before batch 2 arrived; want false and no error", needsBody, err)
		}
		publish(t, s, at(2, "b"))
		if ack, err := s.Decide(ctx, p); ack != nil || err != nil {
			t.Fatalf("Decide returned %v, %v; want neither", ack, err)
		}
		p.Release()
		if held := s.traffic.holds.seqs; len(held) != 0 {
			t.Errorf("sequences %v are still held after Release", held)
		}
	})
}

// A gap does not close while another node says that it is receiving a batch for the gap. When the
// other node no longer says so, the rest of the grace runs.
func TestGapUnderABodyElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t, memory.New(), Options{}), open(t, memory.New(), Options{}) // two hubs with the same stream
		defer a.Close()
		defer b.Close()
		receiver, other := made(t, a, func(s *Spec) { s.ID = "both" }), made(t, b, func(s *Spec) { s.ID = "both" })
		a.shared = true
		there, here := NewElsewhere(a), NewElsewhere(b)
		exchange := func(span time.Duration) {
			for end := time.Now().Add(span); time.Now().Before(end); {
				if report := there.Tell(); report != nil {
					here.Hear(report)
				}
				here.Tell()
				<-time.After(tellEvery / 10)
			}
			synctest.Wait()
		}
		publish(t, receiver, at(1, "a"))
		body := at(2, "b")
		if ack, err := receiver.Decide(ctx, body); ack != nil || err != nil {
			t.Fatalf("got acknowledgement %v and error %v, want neither", ack, err)
		}
		publish(t, other, at(1, "a"))
		publish(t, other, at(3, "c"))
		f := other.openFeed()
		isOpen := func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.state.Awaits(2)
		}
		exchange(10 * time.Minute)
		if !isOpen() {
			t.Fatal("the gap was closed while another node was receiving the batch")
		}
		body.Release() // the body has broken off
		exchange(heardFor - tellEvery)
		if !isOpen() {
			t.Error("the gap was closed as soon as the other node no longer received the batch")
		}
		exchange(2*time.Second + tellEvery)
		if isOpen() {
			t.Error("the gap is still open although no node is receiving the batch")
		}
		if n := len(other.traffic.holds.elsewhere) + len(here.heard); n != 0 {
			t.Errorf("%d sequences and streams are still remembered", n)
		}
	})
}

// While a request is being received, the grace of its sequence is paused. If the request ends
// without a stored batch, the grace continues.
func TestGapAfterABrokenBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memory.New(), Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "a"))
		publish(t, s, at(3, "c"))
		<-time.After(500 * time.Millisecond)
		one, two := at(2, ""), at(2, "")
		for _, p := range []*Publish{one, two} {
			if _, err := s.Decide(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Minute)
		one.Release()
		<-time.After(time.Minute)
		two.Release()
		closes(t, s, 2, 1500*time.Millisecond, 1500*time.Millisecond)
	})
}

// Requests that fail one after another keep a gap open only while they are being received, whether
// they take microseconds or seconds.
func TestGapUnderRequestsThatFail(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Millisecond, 150 * time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, memory.New(), Options{})
			defer h.Close()
			s := made(t, h, nil)
			publish(t, s, at(1, "a"))
			publish(t, s, at(3, "c"))
			const pause = 100 * time.Millisecond
			for tries := 0; ; tries++ {
				p := at(2, "")
				if _, err := s.Decide(ctx, p); err != nil {
					if tries < 19 || tries > 21 {
						t.Errorf("requests of %v: the gap was closed after %d of them, want 20", takes, tries)
					}
					return
				}
				<-time.After(takes)
				p.Release()
				<-time.After(pause)
			}
		})
	}
}

// The grace of each missing sequence is compared with a model while random requests are received.
// For each sequence, the model counts the time in which no request was being received for that
// sequence or for a missing sequence below it.
func TestGraceOfRandomRequests(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { randomGrace(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func randomGrace(t *testing.T, r *rand.Rand) {
	h := open(t, memory.New(), Options{})
	defer h.Close()
	s := made(t, h, nil)
	publish(t, s, at(1, ""))
	cursor, requests := weir.Seq(1), []*Publish(nil)
	missing := map[weir.Seq]time.Duration{} // the missing sequences, with the part of their grace that has passed
	store := func(p *Publish) {
		publish(t, s, p)
		for seq := cursor + 1; seq < p.Seq; seq++ {
			missing[seq] = 0
		}
		delete(missing, p.Seq)
		cursor = max(cursor, p.Seq)
	}
	pass := func(d time.Duration) {
		<-time.After(d)
		synctest.Wait()
		lowest := stream.NoneHeld
		for _, p := range requests {
			if _, open := missing[p.Seq]; open {
				lowest = min(lowest, p.Seq)
			}
		}
		for seq, passed := range missing {
			if seq < lowest {
				passed += d
				missing[seq] = passed
			}
			const late = 10 * time.Millisecond // tolerance, because the hub's timer is not exact
			s.traffic.open().mu.Lock()
			open := s.traffic.open().ahead.Awaits(seq)
			s.traffic.open().mu.Unlock()
			if over := passed - h.opts.GapGrace; !open && over < -late || open && over > late {
				t.Fatalf("sequence %d is open: %v, after %v of its grace", seq, open, passed)
			}
			if !open {
				delete(missing, seq)
			}
		}
	}
	for range 60 {
		pass(time.Duration(r.IntN(700)) * time.Millisecond)
		if r.IntN(3) == 0 {
			store(at(cursor+1+weir.Seq(r.IntN(4)), ""))
		}
		if p := at(max(cursor, 4)-3+weir.Seq(r.IntN(7)), ""); r.IntN(2) == 0 {
			if ack, err := s.Decide(ctx, p); ack == nil && err == nil {
				requests = append(requests, p)
			}
		}
		if n := len(requests); n > 0 && r.IntN(2) == 0 {
			i := r.IntN(n)
			p := requests[i]
			requests = append(requests[:i], requests[i+1:]...)
			if _, open := missing[p.Seq]; open && r.IntN(3) == 0 {
				store(p)
			}
			p.Release()
		}
	}
}

// closes checks that a missing sequence is closed after a time between earliest and latest, counted
// from now. To test the sequence without filling the gap, it publishes a batch that is too large to
// be stored.
func closes(t *testing.T, s *Stream, seq weir.Seq, earliest, latest time.Duration) {
	t.Helper()
	refusal := func() weir.Code {
		_, err := s.Publish(ctx, at(seq, string(make([]byte, weir.MaxBody+1))))
		return code(err)
	}
	<-time.After(earliest - 10*time.Millisecond)
	synctest.Wait()
	if got := refusal(); got != weir.PayloadTooLarge {
		t.Errorf("sequence %d just before %v: refused with %s, want it to be open", seq, earliest, got)
	}
	<-time.After(latest - earliest + 20*time.Millisecond)
	synctest.Wait()
	if got := refusal(); got != weir.InvalidSequence {
		t.Errorf("sequence %d just after %v: refused with %s, want it to be closed", seq, latest, got)
	}
}

// While the store accepts no writes, the grace of all gaps is paused. When the store accepts writes
// again, the gaps of all streams get their whole grace again, however short the interruption was
// (D4).
func TestGapWhileTheStoreTakesNoWrites(t *testing.T) {
	for name, state := range map[string]engine.State{"full": engine.Full, "read-only": engine.ReadOnly, "unreachable": engine.Unreachable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &balky{Engine: memory.New()}
				h := open(t, e, Options{})
				defer h.Close()
				s, other := made(t, h, nil), made(t, h, nil)
				for _, s := range []*Stream{s, other} {
					publish(t, s, at(1, "a"))
					publish(t, s, at(3, "c"))
				}
				<-time.After(1900 * time.Millisecond)
				e.state.Store(uint32(state))
				if _, err := s.Publish(ctx, at(2, "b")); code(err) != weir.StorageUnavailable {
					t.Fatalf("publish: %v, want %s", err, weir.StorageUnavailable)
				}
				<-time.After(50 * time.Millisecond)
				e.state.Store(uint32(engine.Ready)) // at 1950 ms, before the grace of 2 s would have ended
				<-time.After(checkWritesEvery)
				synctest.Wait()
				<-time.After(time.Second)
				e.state.Store(uint32(state)) // a second interruption, during which no publish is tried
				<-time.After(10 * time.Minute)
				e.state.Store(uint32(engine.Ready))
				<-time.After(checkWritesEvery)
				synctest.Wait()
				publish(t, s, at(2, "b"))
				closes(t, other, 2, 2*time.Second-checkWritesEvery, 2*time.Second)
			})
		})
	}
}

// A write that the store does not answer in time restarts the grace of the gaps of that stream,
// even if the store as a whole accepts writes.
func TestGapAfterAnUnansweredWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &balky{Engine: memory.New()}
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "a"))
		publish(t, s, at(3, "c"))
		<-time.After(1900 * time.Millisecond)
		e.silent.Store(true)
		if _, err := s.Publish(ctx, at(2, "b")); code(err) != weir.StorageUnavailable {
			t.Fatalf("publish: %v, want %s", err, weir.StorageUnavailable)
		}
		e.silent.Store(false)
		closes(t, s, 2, 2*time.Second, 2*time.Second)
	})
}

// balky is an engine that accepts no writes while its state is not Ready. While the field silent is
// set, appends fail with ErrUnavailable although the store is Ready.
type balky struct {
	engine.Engine
	state  atomic.Uint32
	silent atomic.Bool
}

func (e *balky) Status() engine.Status {
	s := engine.Status{State: engine.State(e.state.Load())}
	if s.State != engine.Ready {
		s.Reason = engine.ErrFull
	}
	return s
}

func (e *balky) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &balkyLog{l, e}, err
}

type balkyLog struct {
	engine.Log
	e *balky
}

func (l *balkyLog) Append(ctx context.Context, e *engine.Entry) error {
	switch engine.State(l.e.state.Load()) {
	case engine.Full:
		return engine.ErrFull
	case engine.ReadOnly:
		return engine.ErrReadOnly
	case engine.Unreachable:
		return engine.ErrUnavailable
	}
	if l.e.silent.Load() {
		return engine.ErrUnavailable
	}
	return l.Log.Append(ctx, e)
}

// A batch that is stored slowly and evicts others takes no grace from a gap that was opened meanwhile.
func TestGraceOfGapOpenedDuringCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memory.New(), Options{GapGrace: 2 * time.Second})
		defer h.Close()
		s := made(t, h, func(s *Spec) { s.MaxBytes = 1000 })
		publish(t, s, at(1, "x"))
		publish(t, s, at(3, strings.Repeat("x", 600)))
		held := at(2, "y") // its body is being received, so the gaps above it stay open
		if _, err := s.Decide(ctx, held); err != nil {
			t.Fatal(err)
		}
		defer held.Release()
		f, err := s.acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer f.release()
		admit := func(p *Publish) {
			t.Helper()
			if p := newProposal(f, stream.Publish{Chosen: true, Seq: p.Seq, Size: int64(len(p.Batch.Payload))}, p, false); !f.Admit(&p.entry) {
				t.Fatalf("a batch was refused: %v", p.verdict.Err)
			}
		}
		admit(at(4, strings.Repeat("x", 600)))
		<-time.After(4 * time.Second) // the disk takes this long to store batch 4
		admit(at(6, "z"))             // opens gap 5
		<-time.After(100 * time.Millisecond)
		f.Commit(1) // evicts batches 1 and 3, and with them the held sequence 2
		f.Commit(1)
		<-time.After(100 * time.Millisecond)
		f.mu.Lock()
		defer f.mu.Unlock()
		if v := f.ahead.Decide(stream.Publish{Chosen: true, Seq: 5, Size: 1}, h.now()); v.Outcome != stream.Stored {
			t.Errorf("the gap was closed 0.2 s after it was opened: %v", v.Err)
		}
	})
}
