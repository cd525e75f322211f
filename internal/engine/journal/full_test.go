package journal

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
)

// fillUp creates several logs and appends to them in turn until the disk is full. It returns the
// last sequence.
func fillUp(t *testing.T, w *world, logs int) (last weir.Seq) {
	t.Helper()
	for i := range logs {
		if err := w.create(fmt.Sprint("log", i), "x"); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for err == nil {
		last++
		for i := 0; i < logs && err == nil; i++ {
			err = w.append(fmt.Sprint("log", i), last, 700)
			synctest.Wait() // let the preparer notice a shortage at once
		}
	}
	if !errors.Is(err, engine.ErrFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("append on a full disk: %v", err)
	}
	return last
}

// TestFullOfSparseSegments fills the disk with interleaved logs and trims all but one, so that
// every segment still holds some needed entries. The journal has enough reserved space to copy
// these entries and free the segments, and accepts appends again without help.
func TestFullOfSparseSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		fs.Capacity(8 * small.SegmentSize)
		w := newWorld(t, fs, h)
		defer w.j.Close()
		last := fillUp(t, w, 10)
		for i := 1; i < 10; i++ {
			if err := w.trim(fmt.Sprint("log", i), last+1, ""); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if s := w.j.Status(); s.State != engine.Ready {
			t.Errorf("status is %v after nine of ten logs were trimmed, want ready; %+v", s, w.j.Stats())
		}
		for seq := last + 1; seq < last+60; seq++ {
			if err := w.append("log0", seq, 700); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.j.exact(); err != nil {
			t.Error(err)
		}
		w.j.Close()
		if err := openAndVerify(fs.Crash(faulty.LoseAll, nil), h); err != nil {
			t.Error(err)
		}
	})
}

// TestFullOfDeletions uses up the space reserved for deletions. Segments without needed records can
// still be freed: freeing a segment writes a manifest (a list of the other segments), and the
// journal always keeps room for one.
func TestFullOfDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		fs.Capacity(8 * small.SegmentSize)
		w := newWorld(t, fs, h)
		defer w.j.Close()
		last := fillUp(t, w, 2)
		for i := range 2 { // after this, only the documents in the first segment are still needed
			if err := w.trim(fmt.Sprint("log", i), last+1, ""); err != nil {
				t.Fatal(err)
			}
		}
		var refused error
		for n := 0; refused == nil && n < 10_000; n++ {
			_, refused = w.j.Update(background, "log0", []byte(fmt.Sprint(n)), revisionOf(t, w, "log0"))
		}
		time.Sleep(time.Minute)
		if s := w.j.Status(); s.State != engine.Ready {
			t.Errorf("status %v although most segments hold nothing that is needed, want ready; %+v", s, w.j.Stats())
		}
		if err := w.j.exact(); err != nil {
			t.Error(err)
		}
		w.j.Close()
	})
}

func revisionOf(t *testing.T, w *world, key string) engine.Revision {
	d, err := w.j.Get(background, key)
	if err != nil {
		t.Fatal(err)
	}
	return d.Revision
}

// TestOpenLogOnFullDisk closes and opens logs on a full disk, in the same process and after a
// restart: reading needs no space.
func TestOpenLogOnFullDisk(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	fs.Capacity(3 * small.SegmentSize)
	w := newWorld(t, fs, h)
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	err := error(nil)
	for seq := weir.Seq(1); err == nil; seq++ {
		err = w.append("a", seq, 700)
	}
	for n := 0; err != nil && n < 100_000; n++ { // also use up the space reserved for deletions
		if _, e := w.j.Update(background, "a", []byte("x"), revisionOf(t, w, "a")); e != nil {
			break
		}
	}
	for range 3 {
		if err := h.verifyOpen(w); err != nil {
			t.Error(err)
		}
	}
	w.j.Close()
	if err := openAndVerify(fs, h); err != nil {
		t.Error(err)
	}
	// Now seal the newest segment. Then the next start has no segment to write to, and no space for
	// a new one.
	sealed := fs.Crash(faulty.LoseAll, nil)
	j, err := Open(sealed, small)
	if err != nil {
		t.Fatal(err)
	}
	if j.commit.active != nil {
		if err := j.commit.active.Seal(j.write.next, nil); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	if err := openAndVerify(sealed, h); err != nil {
		t.Error(err)
	}
}

// TestOpenLogOnReadOnlyJournal opens and reads logs of a journal whose disk failed.
func TestOpenLogOnReadOnlyJournal(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	defer w.j.Close()
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	if err := w.appendMany("a", 1, 10, 100); err != nil {
		t.Fatal(err)
	}
	fs.FailCall(faulty.Sync, 1, syscall.EIO)
	if err := w.append("a", 11, 100); !errors.Is(err, engine.ErrReadOnly) {
		t.Fatal(err)
	}
	if err := h.verifyOpen(w); err != nil {
		t.Error(err)
	}
}

// TestNoSpaceToOverwrite makes writes of groups, indexes and watermarks fail for lack of space, as
// a copy-on-write file system does. The append that is being written waits, other appends are
// refused, reads work, and the journal reports that it is full. When there is space again, the
// journal writes the same group at the same offset, without a restart.
func TestNoSpaceToOverwrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		w := newWorld(t, fs, h)
		defer w.j.Close()
		if err := errors.Join(w.create("a", "x"), w.appendMany("a", 1, 30, 900)); err != nil {
			t.Fatal(err)
		}
		var full atomic.Bool
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.Write && full.Load() {
				return faulty.Partial{Err: syscall.ENOSPC, Bytes: c.Len / 2}
			}
			return nil
		})
		for round := range weir.Seq(20) { // some rounds seal a segment
			time.Sleep(time.Second)
			full.Store(true)
			first := 100 + 10*round
			waiting := make(chan error, 1)
			go func() { waiting <- w.append("a", first, 9000) }()
			synctest.Wait()
			if s := w.j.Status(); s.State != engine.Full || !errors.Is(s.Reason, syscall.ENOSPC) {
				t.Fatalf("round %d: status %v, want full", round, s)
			}
			if err := w.append("a", first+1, 100); !errors.Is(err, engine.ErrFull) {
				t.Fatalf("round %d: append on a full disk: %v", round, err)
			}
			if _, err := w.logs["a"].Read(background, 1); err != nil {
				t.Fatalf("round %d: read on a full disk: %v", round, err)
			}
			time.Sleep(10 * time.Second)
			full.Store(false)
			if err := <-waiting; err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if s := w.j.Status(); s.State != engine.Ready {
				t.Fatalf("round %d: status %v, want ready", round, s)
			}
			if err := openAndVerify(fs.Crash(faulty.LoseAll, nil), h.copy()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		full.Store(true) // closing does not wait for space
		lost := make(chan error, 1)
		go func() { lost <- w.append("a", 1000, 100) }()
		synctest.Wait()
		w.j.Close()
		if err := <-lost; !errors.Is(err, engine.ErrReadOnly) {
			t.Errorf("append while closing: %v", err)
		}
	})
}

// TestBadFileWhilePreparing makes calls fail while the preparer makes the next segment ready. The
// preparer tries another file, and no append is refused.
func TestBadFileWhilePreparing(t *testing.T) {
	for _, kind := range []faulty.Kind{faulty.Create, faulty.Write, faulty.Sync, faulty.Rename} {
		synctest.Test(t, func(t *testing.T) {
			fs, h := faulty.New(), newHistory()
			w := newWorld(t, fs, h)
			defer w.j.Close()
			if err := w.create("a", "x"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			failed := 0
			fs.OnCall(func(c faulty.Call) error {
				if c.Kind == kind && c.Name == temporary && failed < mostSpoilt {
					failed++
					return syscall.EIO
				}
				return nil
			})
			for seq := weir.Seq(1); seq <= 150; seq++ {
				if err := w.append("a", seq, 1000); err != nil {
					t.Fatalf("%v calls fail: append: %v", kind, err)
				}
			}
			if s := w.j.Status(); s.State != engine.Ready || failed < mostSpoilt {
				t.Errorf("%v calls fail: status %v after %d failures, want ready after at least %d", kind, s, failed, mostSpoilt)
			}
			if err := openAndVerify(fs.Crash(faulty.LoseAll, nil), h); err != nil {
				t.Errorf("%v calls fail: after a crash: %v", kind, err)
			}
		})
	}
}
