package journal

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

// isFill reports whether a call fills a part of a segment with zeros. It recognises such a call by
// its length, which no other write of these tests has.
func isFill(c faulty.Call) bool {
	return c.Kind == faulty.Write && c.Off >= segments.DataStart && c.Len == zeroStep
}

// openBlank opens a fresh journal with segments that take several steps to fill with zeros.
func openBlank(t *testing.T, fs *faulty.FS) *world {
	t.Helper()
	j, err := Open(fs, Options{SegmentSize: 16 * zeroStep})
	if err != nil {
		t.Fatal(err)
	}
	return &world{j: j, h: newHistory(), logs: map[string]engine.Log{}}
}

// The first append to a fresh journal waits for at most one step of filling its segment with zeros.
// The rest of the segment is filled afterwards.
func TestFirstAppendIsNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		var steps, groups atomic.Int64
		held := make(chan struct{})
		fs.OnCall(func(c faulty.Call) error {
			switch {
			case isFill(c) && steps.Add(1) == 1:
				<-held
			case isFill(c) && groups.Load() == 0:
				t.Error("the first group waits for more than one step")
			case c.Kind == faulty.Write && c.Name == segments.Name(1) && c.Off == segments.DataStart:
				groups.Add(1)
			}
			return nil
		})
		w := openBlank(t, fs)
		defer w.j.Close()
		done := make(chan error, 1)
		go func() { done <- w.create("a", "x") }()
		synctest.Wait()
		close(held)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := steps.Load(); n < 16 {
			t.Errorf("the segment was filled in %d steps, want at least 16", n)
		}
	})
}

// While a segment is being filled with zeros, no step of the filling (a write and a sync) comes
// between the write of a group of records and its sync. Otherwise the sync of the step could get
// the error of the group's write, and the group's own sync would succeed.
func TestFillingKeepsOutOfGroups(t *testing.T) {
	fs := faulty.New()
	var writing atomic.Bool
	var steps atomic.Int64
	fs.OnCall(func(c faulty.Call) error {
		switch {
		case c.Name != segments.Name(1) || c.Off == watermarkAt:
		case isFill(c):
			if steps.Add(1); writing.Load() {
				t.Errorf("a step of filling came between a group and its sync")
			}
			for range 20 {
				runtime.Gosched()
			}
		case c.Kind == faulty.Write:
			writing.Store(true)
			for range 200 {
				runtime.Gosched()
			}
		case c.Kind == faulty.Sync:
			writing.Store(false)
		}
		return nil
	})
	w := openBlank(t, fs)
	defer w.j.Close()
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	for seq := weir.Seq(1); w.j.store.segment(1).blank.Load() > 0; seq++ {
		if err := w.append("a", seq, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if steps.Load() < 5 {
		t.Errorf("the segment was filled in %d steps, want at least 5", steps.Load())
	}
	if err := w.h.verifyOpen(w); err != nil {
		t.Error(err)
	}
}

// A disk error while a segment is filled does no harm: a segment that is not in use is replaced,
// and one in use is no longer filled. A segment is removed without a lock, because the disk may take
// a long time for it.
func TestFillingFails(t *testing.T) {
	for _, name := range []string{segments.Name(1), segments.Name(2)} {
		fs := faulty.New()
		var failed atomic.Bool
		var w *world
		opened := make(chan struct{})
		fs.OnCall(func(c faulty.Call) error {
			switch {
			case isFill(c) && c.Name == name && failed.CompareAndSwap(false, true):
				return syscall.EIO
			case c.Kind == faulty.Remove && c.Name == name:
				<-opened
				w.j.prepare.shortage() // blocks for ever if the preparer holds its lock
			}
			return nil
		})
		w = openBlank(t, fs)
		close(opened)
		if err := w.create("a", "x"); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); !failed.Load(); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("the journal did not begin to fill %s", name)
			}
		}
		if err := w.appendMany("a", 1, 200, 30_000); err != nil {
			t.Fatal(err)
		}
		if n := w.j.write.active.Number; n < 2 {
			t.Errorf("active segment %d, want at least 2", n)
		}
		w.j.Close()
		if err := openAndVerify(fs.Crash(faulty.LoseAll, nil), w.h); err != nil {
			t.Errorf("a write failed while %s was filled: after a crash: %v", name, err)
		}
	}
}

// A group, which is written and synced at once, has a bounded number of operations, however many
// are waiting.
func TestGroupIsBounded(t *testing.T) {
	w := openBlank(t, faulty.New())
	defer w.j.Close()
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	h := w.logs["a"].(*handle)
	var ops []op
	done := make(chan error, 3*mostOps)
	for seq := weir.Seq(1); seq <= 3*mostOps; seq++ {
		e := &engine.Entry{Header: engine.Header{Kind: engine.Batch, Seq: seq}}
		ops = append(ops, &appendOp{h: h, e: e, sum: segments.Sum(0, nil), done: func(err error) { done <- err }})
	}
	before := w.j.Stats().Groups
	w.j.queueTogether(ops...)
	for range ops {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if n := w.j.Stats().Groups - before; n < 3 {
		t.Errorf("%d appends are in %d groups, want at least 3", len(ops), n)
	}
}
