package stream

import (
	"fmt"
	"testing"
	"time"

	"weir"
)

// The cost of a State depends on the number of its gaps and keys, not on the number of its batches.
// To show this, the tests count allocations and examined gaps. They measure no time.

var wide = Rules{MaxBytes: 1 << 40, Retention: 48 * time.Hour, GapGrace: 2 * time.Second, Keys: 1000}

// publish decides on p and applies it. It fails the test if p is not stored.
func publish(t testing.TB, s *State, p Publish, now weir.Time) {
	v := s.Decide(p, now)
	if v.Outcome != Stored {
		t.Fatalf("publish %+v at time %d: got verdict %+v, want Stored", p, now, v)
	}
	s.Apply(v.Header)
}

func TestContiguousBatchesCostNoMemory(t *testing.T) {
	s := New(wide, 0)
	now := weir.Time(0)
	one := func() {
		now++
		publish(t, s, Publish{Size: 1}, now)
	}
	if allocs := testing.AllocsPerRun(1_000_000, one); allocs != 0 {
		t.Errorf("a contiguous publish allocates %v times, want 0", allocs)
	}
	if s.cursor < 1_000_000 || s.gaps.closed != nil || s.gaps.open != nil || s.keys != nil {
		t.Errorf("after %d batches the state holds %+v and %+v", s.cursor, s.gaps, s.keys)
	}
}

func TestOutOfOrderBatchesLeaveNothingBehind(t *testing.T) {
	s := New(wide, 0)
	publish(t, s, Publish{}, 0)
	for range 10_000 {
		c := s.cursor
		for _, ahead := range []weir.Seq{4, 2, 1, 3} {
			publish(t, s, Publish{Chosen: true, Seq: c + ahead}, 0)
		}
	}
	if s.gaps.open != nil || s.gaps.closed != nil {
		t.Errorf("all gaps were filled, but the state holds %+v", s.gaps)
	}
}

// steps counts the gaps and producers that f examines or moves.
func steps(f func()) (n int) {
	looked = func(more int) { n += more }
	defer func() { looked = nil }()
	f()
	return n
}

// manyGaps returns a state in which all odd sequences up to 2n are missing and closed.
func manyGaps(t testing.TB, n int) *State {
	s := New(wide, 0)
	for s.cursor < weir.Seq(2*n) {
		publish(t, s, Publish{Chosen: true, Seq: s.cursor + 2}, 0)
	}
	marker, ok := s.Due(2000, NoneHeld)
	if !ok {
		t.Fatal("Due returned no marker for the open gaps")
	}
	s.Apply(marker)
	if len(s.gaps.closed) != n || len(s.gaps.open) != 0 {
		t.Fatalf("%d gaps are closed and %d open, want all closed", len(s.gaps.closed), len(s.gaps.open))
	}
	return s
}

func TestManyClosedGapsStayCheap(t *testing.T) {
	const n, few = 100_000, 100 // a binary search of n gaps takes 17 steps, and an operation may search a few times
	s := manyGaps(t, n)
	now := weir.Time(3000)
	operations := []struct {
		name string
		run  func()
	}{
		{"publish next", func() { publish(t, s, Publish{}, now) }},
		{"publish above a gap", func() { publish(t, s, Publish{Chosen: true, Seq: s.cursor + 3}, now) }},
		{"final", func() { s.Final() }},
		{"step", func() { s.Next(5) }},
		{"late fill", func() { publish(t, s, Publish{Chosen: true, Seq: s.cursor - 1}, now) }},
		{"duplicate", func() { s.Decide(Publish{Chosen: true, Seq: n}, now) }},
		{"closed", func() { s.Decide(Publish{Chosen: true, Seq: n + 1}, now) }},
		{"lookup", func() { s.Lookup(n) }},
		{"nothing due", func() { s.Due(now, NoneHeld) }},
		{"close", func() { m, _ := s.Due(now+2000, NoneHeld); s.Apply(m) }},
		{"evict one", func() {
			s.rules.MaxBytes = -1 // no size fits, so Evict evicts the one batch that it visits
			s.Evict(now+2000, func(from weir.Seq, visit func(Header) bool) { visit(Header{Seq: 2, Time: now + 2000}) })
		}},
	}
	for _, o := range operations {
		if got := steps(o.run); got > few {
			t.Errorf("%s examines %d of %d gaps, want at most %d", o.name, got, n, few)
		}
	}
	if err := s.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// A long-running stream that keeps opening gaps and evicting batches holds only the gaps between
// kept batches.
func TestEvictedGapsAreForgotten(t *testing.T) {
	const n, kept = 50_000, 1000
	s := New(wide, 0)
	now := weir.Time(0)
	got := steps(func() {
		for range n {
			now += 2000
			publish(t, s, Publish{Chosen: true, Seq: s.cursor + 2}, now)
			if m, ok := s.Due(now+2000, NoneHeld); ok {
				s.Apply(m)
			}
			if s.cursor > 2*kept {
				s.low = s.cursor - 2*kept + 1
				s.gaps.drop(s.low)
			}
			if len(s.gaps.closed) > kept || cap(s.gaps.closed) > 4*kept {
				t.Fatalf("%d closed gaps are kept, with a capacity of %d", len(s.gaps.closed), cap(s.gaps.closed))
			}
		}
	})
	if got > 50*n {
		t.Errorf("opening and evicting %d gaps takes %d steps, want at most 50 per gap", n, got)
	}
	s.gaps.drop(s.cursor)
	if s.gaps.closed != nil || s.gaps.open != nil {
		t.Errorf("after all gaps were dropped, the state holds %+v", s.gaps)
	}
}

func TestKeysAreForgotten(t *testing.T) {
	s := New(wide, 0)
	hour := weir.Time(time.Hour.Milliseconds())
	for i := range 2000 {
		publish(t, s, Publish{Key: fmt.Sprint("key ", i)}, weir.Time(i)*hour)
		if s.keys.queue.len() > 24 || s.keys.place.used > 24 || len(s.keys.place.slots) > 256 || s.keys.queue.capacity() > 200 {
			t.Fatalf("after %d hours, %d keys are in the queue and %d in the hash table, want at most 24", i, s.keys.queue.len(), s.keys.place.used)
		}
	}
	s.Evict(3000*hour, func(weir.Seq, func(Header) bool) {})
	if s.keys.queue.pieces != nil || s.keys.place.slots != nil {
		t.Errorf("after all keys expired, %d keys are in the queue and %d in the hash table, want no memory for either", s.keys.queue.len(), s.keys.place.used)
	}
}

// If nothing has expired, eviction examines one batch, however many are kept.
func TestEvictingNothingIsCheap(t *testing.T) {
	s := New(wide, 0)
	for range 1000 {
		publish(t, s, Publish{Size: 1}, 0)
	}
	visits := 0
	evicted := s.Evict(1, func(from weir.Seq, visit func(Header) bool) {
		for seq := from; seq <= s.cursor; seq++ {
			visits++
			if !visit(Header{Seq: seq, Size: 1}) {
				return
			}
		}
	})
	if evicted != 0 || visits != 1 {
		t.Errorf("evicted %d batches and examined %d; want 0 and 1", evicted, visits)
	}
}
