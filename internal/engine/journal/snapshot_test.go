package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"
	"syscall"
	"testing"

	"weir"
	"weir/internal/disk"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/repair"
)

// restoreSnapshot copies a snapshot into an empty directory and checks the restored journal.
func restoreSnapshot(s *Snapshot) (*faulty.FS, error) {
	dir := faulty.New()
	return dir, restoreInto(dir, s)
}

func restoreInto(dir disk.FS, s *Snapshot) error {
	defer s.Close()
	r, err := repair.NewRestore(dir)
	if err != nil {
		return err
	}
	for i, f := range s.Files() {
		var b bytes.Buffer
		if err := s.Copy(&b, i); err != nil {
			return errors.Join(err, r.Abort())
		}
		if int64(b.Len()) != f.Size {
			return fmt.Errorf("%s is %d bytes, want %d", f.Name, b.Len(), f.Size)
		}
		if err := r.Add(f.Name, &b); err != nil {
			return errors.Join(err, r.Abort())
		}
	}
	report, err := r.Finish(repair.CheckOptions{})
	if err != nil {
		return errors.Join(err, r.Abort())
	}
	if len(report.Damages) > 0 {
		return fmt.Errorf("the restored journal is damaged: %+v", report.Damages)
	}
	return nil
}

// historyBetween returns the history that a snapshot must match if it was taken at some time
// between two histories. Such a snapshot contains at least everything that was acknowledged in the
// earlier history, and at most everything that was requested in the later one.
func historyBetween(earlier, later *history) *history {
	h := earlier.copy()
	for key, d := range h.docs {
		d.open, d.lowMay, d.maybe = later.docs[key].open, later.docs[key].lowMay, maps.Clone(later.docs[key].maybe)
	}
	return h
}

// The test takes snapshots while several logs are written and trimmed, so that segments fill up,
// become empty and are recycled. Each snapshot is a journal with everything that was acknowledged
// before the snapshot. The running journal is not affected.
func TestSnapshotUnderLoad(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	keys := []string{"a", "b", "c"}
	for _, key := range keys {
		if err := errors.Join(w.create(key, "x"), w.append(key, 1, 10), w.trim(key, 1, "n")); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	for _, key := range keys {
		load.Go(func() {
			for seq := weir.Seq(2); ; seq++ {
				select {
				case <-stop:
					return
				default:
				}
				err := w.append(key, seq, 700)
				if seq%40 == 0 && err == nil {
					err = w.trim(key, seq-30, "n")
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 30 {
		before := h.copy()
		s, err := w.j.Snapshot(background)
		if err != nil {
			t.Fatal(err)
		}
		after := h.copy()
		dir, err := restoreSnapshot(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := openAndVerify(dir, historyBetween(before, after)); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	load.Wait()
	w.j.Close() // also stops the reclaimer, which would hold segments too
	for _, s := range w.j.store.allSegments() {
		if n := s.refs.Load(); n != 1 {
			t.Errorf("%s has %d references, want 1", s.Name, n)
		}
	}
	if err := openAndVerify(fs.Crash(faulty.LoseAll, nil), h); err != nil {
		t.Error(err)
	}
}

// held returns a journal of several segments and a snapshot of it.
func held(t *testing.T) (*faulty.FS, *world, *Snapshot) {
	t.Helper()
	fs := faulty.New()
	w, err := openWorld(fs, newHistory())
	if err == nil {
		err = errors.Join(w.create("a", "x"), w.appendMany("a", 1, 200, 1000))
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.j.Snapshot(background)
	if err != nil {
		t.Fatal(err)
	}
	return fs, w, s
}

// A segment that a snapshot still needs is not recycled, even if none of its records are needed.
// The snapshot releases a segment after it has copied the segment.
func TestSnapshotHoldsSegments(t *testing.T) {
	_, w, s := held(t)
	defer w.j.Close()
	history := w.h.copy()
	if err := w.trim("a", 201, "gone"); err != nil {
		t.Fatal(err)
	}
	// If the journal recycled the segments of the snapshot, these entries would overwrite them.
	if err := w.appendMany("a", 201, 600, 1000); err != nil {
		t.Fatal(err)
	}
	held := []*segment{}
	for _, p := range s.parts {
		held = append(held, p.seg)
	}
	dir, err := restoreSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := openAndVerify(dir, history); err != nil {
		t.Error(err)
	}
	for _, seg := range held {
		if n := seg.refs.Load(); n > 1 {
			t.Errorf("%s has %d references after the snapshot was copied, want at most 1", seg.Name, n)
		}
	}
}

// If the client disconnects during a copy, the copy ends. Nothing else is affected.
func TestSnapshotEndsEarly(t *testing.T) {
	fs, w, s := held(t)
	out := &failing{left: 50_000}
	var err error
	for i := range s.Files() {
		if err = s.Copy(out, i); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("copy to a client that disconnects: %v", err)
	}
	s.Close()
	for _, p := range s.parts {
		if n := p.seg.refs.Load(); n > 1 {
			t.Errorf("%s has %d references after the snapshot was closed, want at most 1", p.seg.Name, n)
		}
	}
	if err := w.append("a", 201, 10); err != nil {
		t.Errorf("append after the failed copy: %v", err)
	}
	w.j.Close()
	if err := openAndVerify(fs, w.h); err != nil {
		t.Error(err)
	}
}

type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, syscall.EIO
	}
	return len(b), nil
}

// After its disk has failed, a journal can still be copied. The copy has everything that the
// journal acknowledged.
func TestSnapshotReadOnly(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w, err := openWorld(fs, h)
	if err == nil {
		err = errors.Join(w.create("a", "x"), w.appendMany("a", 1, 100, 1000))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.j.Close()
	fs.FailCall(faulty.Sync, 1, syscall.EIO)
	for seq := weir.Seq(101); err == nil; seq++ {
		err = w.append("a", seq, 10)
	}
	if !errors.Is(err, engine.ErrReadOnly) {
		t.Fatal(err)
	}
	s, err := w.j.Snapshot(background)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := restoreSnapshot(s)
	if err == nil {
		err = openAndVerify(dir, h)
	}
	if err != nil {
		t.Error(err)
	}
}

// If no server is running, OpenSnapshot takes a snapshot of the directory, after a clean shutdown
// and after a crash. A running journal without segments has a snapshot too.
func TestSnapshotOffline(t *testing.T) {
	fs, w, s := held(t)
	s.Close()
	if _, err := OpenSnapshot(fs); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("snapshot while the journal is open: %v", err)
	}
	killed := fs.Crash(faulty.LoseNothing, nil)
	w.j.Close()
	for _, dir := range []*faulty.FS{fs, killed} {
		s, err := OpenSnapshot(dir)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := restoreSnapshot(s)
		if err == nil {
			err = openAndVerify(copied, w.h)
		}
		if err != nil {
			t.Error(err)
		}
		if err := openAndVerify(dir, w.h); err != nil {
			t.Errorf("original after the snapshot: %v", err)
		}
	}
	empty := faulty.New()
	if _, err := OpenSnapshot(empty); !errors.Is(err, ErrForeign) {
		t.Errorf("snapshot of an empty directory: %v", err)
	}
	j, err := Open(empty, small)
	if err != nil {
		t.Fatal(err)
	}
	s, err = j.Snapshot(background)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := restoreSnapshot(s)
	if err == nil {
		err = openAndVerify(copied, newHistory())
	}
	if err != nil {
		t.Errorf("snapshot of a journal without segments: %v", err)
	}
	j.Close()
	if _, err := j.Snapshot(background); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("snapshot of a closed journal: %v", err)
	}
}
