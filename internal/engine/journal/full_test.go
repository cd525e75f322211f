package journal

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
)

// fillUp appends in turns to several logs, and then updates a document, until nothing fits any more.
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
			synctest.Wait() // the preparer knows of the shortage as soon as there is one
		}
	}
	if !errors.Is(err, engine.ErrFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("on a full disk: %v", err)
	}
	return last
}

// TestFullOfSparseSegments fills the disk with logs side by side and trims all but one: every segment still holds
// something. There is room to empty them, and appends are taken again without help.
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
			t.Errorf("status %v after nine of ten entries were trimmed; %+v", s, w.j.Stats())
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

// TestFullOfDeletions uses up what is kept for deleting. Dead segments are given up all the same, since there is
// always room to say so.
func TestFullOfDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		fs.Capacity(8 * small.SegmentSize)
		w := newWorld(t, fs, h)
		defer w.j.Close()
		last := fillUp(t, w, 2)
		for i := range 2 { // dead, but for the documents in the first segment
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
			t.Errorf("status %v although most segments are dead; %+v", s, w.j.Stats())
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

// TestOpenLogOnFullDisk closes and opens logs on a disk that takes nothing, in the same process and after a restart:
// reading needs no space.
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
	for n := 0; err != nil && n < 100_000; n++ { // and what is kept for deleting
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
	// A start that finds its newest segment sealed has none to write to, and no space for one.
	sealed := fs.Crash(faulty.LoseAll, nil)
	j, err := Open(sealed, small)
	if err != nil {
		t.Fatal(err)
	}
	if j.commit.active != nil {
		if err := j.commit.active.seal(j.size, j.write.next); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	if err := openAndVerify(sealed, h); err != nil {
		t.Error(err)
	}
}

// TestOpenLogOnReadOnlyJournal reads logs of a journal whose disk failed.
func TestOpenLogOnReadOnlyJournal(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	defer w.j.Close()
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	if err := w.many("a", 1, 10, 100); err != nil {
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
