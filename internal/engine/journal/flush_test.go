package journal

import (
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
)

// propose proposes a deferred entry. The outcome arrives on the returned channel.
func (w *world) propose(key string, seq weir.Seq) chan error {
	done := make(chan error, 1)
	e := &engine.Entry{Payload: payloadOf(key, seq, 100), Deferred: true, Header: engine.Header{Kind: engine.Batch, Seq: seq, Time: weir.Time(seq)}}
	w.logs[key].Propose(e, func(err error) { done <- err })
	return done
}

// timed opens a journal with one log on a disk whose syncs call the function sync, which takes some
// time. It warms up the journal, so that the journal knows how long a sync takes.
func timed(t *testing.T, sync func()) (*world, *faulty.FS) {
	fs := faulty.New()
	w := newWorld(t, fs, newHistory())
	w.j.queue.mu.Lock()
	w.j.opts.QuickDisk = quick
	w.j.queue.mu.Unlock()
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind == faulty.Sync {
			sync()
		}
		return nil
	})
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	for seq := range weir.Seq(40) {
		if err := w.append("a", 2*seq+1, 10); err != nil {
			t.Fatal(err)
		}
	}
	return w, fs
}

// On a quick disk, Flush reports the outcomes of all deferred entries before it returns. They are in
// one group. Without Flush, the journal does not begin with them. When the journal has been idle for
// a while, it proves how far it is synced.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := 50 * time.Microsecond
		w, _ := timed(t, func() { time.Sleep(took) })
		defer w.j.Close()
		for round := range weir.Seq(5) {
			time.Sleep(time.Second)
			synctest.Wait()
			before := w.j.Stats().Groups
			var all []chan error
			for seq := range weir.Seq(10) {
				all = append(all, w.propose("a", 1000+10*round+seq))
			}
			synctest.Wait()
			if n := w.j.Stats().Groups; n != before {
				t.Fatalf("the journal wrote %d groups before Flush", n-before)
			}
			w.j.Flush()
			for i, done := range all {
				select {
				case err := <-done:
					if err != nil {
						t.Fatal(err)
					}
				default:
					t.Fatalf("Flush returned before it reported the outcome of entry %d", i)
				}
			}
			if n := w.j.Stats().Groups - before; n != 1 {
				t.Errorf("Flush wrote %d groups, want 1", n)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !w.j.write.proved || w.j.write.marked != w.j.write.synced {
			t.Error("the end of the journal was not proved after the last Flush")
		}
	})
}

// Flush does not wait for a slow disk, nor for one that is being written to, and the entries are
// written all the same. If the disk becomes quick, Flush waits for it again.
func TestFlushOnASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took atomic.Int64
		took.Store(int64(5 * time.Millisecond))
		w, _ := timed(t, func() { time.Sleep(time.Duration(took.Load())) })
		defer w.j.Close()
		waited := false
		for seq := weir.Seq(1000); seq < 1100; seq++ {
			start := time.Now()
			done := w.propose("a", seq)
			w.j.Flush()
			waited = time.Since(start) > 0
			if waited && seq <= 1020 {
				t.Fatalf("Flush took %v", time.Since(start))
			}
			if seq == 1020 {
				took.Store(int64(50 * time.Microsecond))
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if !waited {
			t.Error("Flush never waited for the quick disk")
		}
	})
}

// Flush does not wait for a disk without space. The writer repeats the write until there is space.
func TestFlushOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := 50 * time.Microsecond
		w, fs := timed(t, func() { time.Sleep(took) })
		defer w.j.Close()
		var full atomic.Bool
		full.Store(true)
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.Write && full.Load() {
				return faulty.Partial{Err: syscall.ENOSPC, Bytes: c.Len / 2}
			}
			return nil
		})
		done := w.propose("a", 1000)
		w.j.Flush()
		synctest.Wait()
		if s := w.j.Status(); s.State != engine.Full {
			t.Fatalf("status %v, want full", s)
		}
		if refused := w.propose("a", 1001); true {
			w.j.Flush()
			if err := <-refused; !errors.Is(err, engine.ErrFull) {
				t.Errorf("append on a full disk: %v", err)
			}
		}
		full.Store(false)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := <-w.flushed("a", 1002); err != nil {
			t.Error(err)
		}
	})
}

// flushed proposes an entry and calls Flush.
func (w *world) flushed(key string, seq weir.Seq) chan error {
	done := w.propose(key, seq)
	w.j.Flush()
	return done
}

// If Flush cannot write, the entries fail and the journal accepts no more writes.
func TestFlushFails(t *testing.T) {
	for _, kind := range []faulty.Kind{faulty.Write, faulty.Sync} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				took := 50 * time.Microsecond
				w, fs := timed(t, func() { time.Sleep(took) })
				defer w.j.Close()
				time.Sleep(time.Second) // so that the journal makes no other calls
				synctest.Wait()
				fs.FailCall(kind, 1, syscall.EIO)
				for range 2 {
					if err := <-w.flushed("a", 1000); !errors.Is(err, engine.ErrReadOnly) {
						t.Errorf("append after a failed %v: %v", kind, err)
					}
				}
			})
		})
	}
}

// Flush takes as many deferred entries as fit in the active segment. The committer takes the others,
// also if they miss the end of the segment by a few bytes. So every entry has an outcome, and the log
// holds them all, in the order in which they were proposed.
func TestFlushAtTheEndOfASegment(t *testing.T) {
	fs := faulty.New()
	w := newWorld(t, fs, newHistory())
	defer w.j.Close()
	w.j.queue.mu.Lock()
	w.j.opts.QuickDisk = time.Hour
	w.j.queue.mu.Unlock()
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	late := time.NewTimer(5 * time.Minute)
	defer late.Stop()
	var order []weir.Seq
	for seq, size := weir.Seq(1), 0; seq < 6000; size = (size*7 + 13) % 311 {
		done := make(chan error, 2)
		for range 2 {
			n := seq
			e := &engine.Entry{Payload: payloadOf("a", n, size), Deferred: true, Header: engine.Header{Kind: engine.Batch, Seq: n, Time: weir.Time(n)}}
			w.logs["a"].Propose(e, func(err error) { order = append(order, n); done <- err })
			seq, size = seq+1, size+1
		}
		w.j.Flush()
		for range 2 {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-late.C:
				t.Fatalf("entry %d or the one before it has no outcome", seq-1)
			}
		}
	}
	if !slices.IsSorted(order) {
		t.Error("the outcomes were reported in another order than that of the proposals")
	}
}
