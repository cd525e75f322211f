package hub

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal"
)

// keyed returns a publish with the idempotency key number n and n events.
func keyed(n int) *Publish {
	return &Publish{Key: fmt.Sprint("key", n), Batch: weir.Batch{Events: uint32(n), Payload: []byte("x")}}
}

// known checks that repeating the n-th publish, with the same key, is acknowledged as a duplicate
// of batch n.
func known(t *testing.T, s *Stream, n int) {
	t.Helper()
	for _, ask := range []func() (*weir.Ack, error){
		func() (*weir.Ack, error) { return s.Decide(ctx, keyed(n)) },
		func() (*weir.Ack, error) { ack, err := s.Publish(ctx, keyed(n)); return &ack, err },
	} {
		if ack, err := ask(); err != nil || ack == nil || !ack.Duplicate || ack.Seq != weir.Seq(n) || ack.Accepted != uint32(n) {
			t.Fatalf("key %d: %+v, %v; want a duplicate of %d", n, ack, err, n)
		}
	}
}

// An idempotency key is remembered for 24 h, even if its batch was evicted and removed from the log
// long before, and even if the server crashes (D25).
func TestKeyOutlivesItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 400 // more keys than fit into the part of a note (the checkpoint stored with a trim) that the journal keeps in memory
		fs := faulty.New()
		options := journal.Options{SegmentSize: 64 << 10}
		j, err := journal.Open(fs, options)
		if err != nil {
			t.Fatal(err)
		}
		h := open(t, j, Options{})
		id := made(t, h, func(s *Spec) { s.RetentionSeconds = 60 }).ID
		for i := 1; i <= n; i++ {
			publish(t, find(t, h, id), keyed(i))
		}
		check := func() {
			t.Helper()
			for _, i := range []int{1, 2, n / 2, n} {
				known(t, find(t, h, id), i)
			}
		}
		check()
		<-time.After(2 * time.Minute) // all batches have expired
		check()
		<-time.After(2 * trimLatest) // by then the batches were trimmed, and the log is closed
		if j.Stats().Live > 40_000 {
			t.Errorf("%d bytes are live; the batches were not trimmed", j.Stats().Live)
		}
		check()
		for range 2 {
			fs = fs.Crash(faulty.LoseAll, nil)
			h.Close()
			j.Close()
			if j, err = journal.Open(fs, options); err != nil {
				t.Fatal(err)
			}
			h = open(t, j, Options{})
			check()
		}
		<-time.After(24 * time.Hour)
		if ack := publish(t, find(t, h, id), keyed(1)); ack.Duplicate || ack.Seq != n+1 {
			t.Errorf("after 24 h: %+v, want batch %d", ack, n+1)
		}
		h.Close()
		j.Close()
	})
}

// After one node has evicted and trimmed the batches of two nodes, both nodes still remember the
// keys of all these batches. So does a node that opens the stream later.
func TestKeysOfAnotherNode(t *testing.T) {
	s := shared(t)
	a, b := node(t, s, Options{}), node(t, s, Options{})
	here := made(t, a, func(s *Spec) { s.MaxBytes = 1000 })
	there := find(t, b, here.ID)
	for i := 1; i <= 30; i += 2 {
		publish(t, here, keyed(i))
		publish(t, there, keyed(i+1))
	}
	f, err := here.acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.trim()
	f.release()
	for _, s := range []*Stream{here, there, find(t, node(t, s, Options{}), here.ID)} {
		for i := 1; i <= 30; i++ {
			known(t, s, i)
		}
	}
}

// A stream that remembers many keys is trimmed less often, because every trim writes all of them.
func TestTrimsWithManyKeys(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, func(s *Spec) { s.MaxBytes = 1000 })
		f, err := s.acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer f.release()
		trims := func(step int, span time.Duration) (n int) {
			last := f.trimmed
			for i := time.Duration(0); i < span; i += sweepEvery {
				publish(t, s, &Publish{Key: fmt.Sprint(step, i), Batch: weir.Batch{Payload: []byte("x")}})
				<-time.After(sweepEvery)
				synctest.Wait()
				f.mu.Lock()
				if f.trimmed != last {
					n, last = n+1, f.trimmed
				}
				f.mu.Unlock()
			}
			return n
		}
		few := trims(0, 10*trimAfter)
		for i := range 3000 {
			publish(t, s, &Publish{Key: fmt.Sprint("more", i), Batch: weir.Batch{Payload: []byte("x")}})
		}
		<-time.After(trimLatest)
		many := trims(1, 10*trimAfter)
		if few < 3 || many > 1 {
			t.Errorf("%d trims in ten times trimAfter with few keys, and %d with 3000; want at least 3 and at most 1", few, many)
		}
	})
}
