package journal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine/journal/repair"
	"weir/internal/engine/journal/segments"
)

// isSeal reports whether a call writes the index and the footer of a full segment.
func isSeal(c faulty.Call) bool {
	_, segment := segments.NumberOf(c.Name)
	return segment && c.Kind == faulty.Write && c.Off+int64(c.Len) == small.SegmentSize && c.Off > segments.DataStart
}

// sealHeld runs a journal until its first segment is full and groups (the records of one write
// each) in the second segment are acknowledged. In this state, sealHeld calls the function test.
// The index of the first segment is not written until test calls the function release.
func sealHeld(t *testing.T, test func(fs *faulty.FS, w *world, release func())) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		w := newWorld(t, fs, h)
		defer w.j.Close()
		held := make(chan struct{})
		release := func() {
			select {
			case <-held:
			default:
				close(held)
			}
		}
		defer release()
		fs.OnCall(func(c faulty.Call) error {
			if isSeal(c) && c.Name == segments.Name(1) {
				<-held
			}
			return nil
		})
		if err := w.create("a", "x"); err != nil {
			t.Fatal(err)
		}
		for seq := weir.Seq(1); w.j.write.active.Number == 1 || seq%20 > 0; seq++ {
			if err := w.append("a", seq, 2000); err != nil { // would never return if a group waited for the index
				t.Fatal(err)
			}
		}
		test(fs, w, release)
	})
}

// While the index of a full segment is being written, appends to the next segment are acknowledged,
// and a snapshot is complete. The journal does not move on to a third segment until the index is
// written, so that a start never has to read the groups of more than two segments.
func TestAppendWhileSealing(t *testing.T) {
	sealHeld(t, func(fs *faulty.FS, w *world, release func()) {
		s, err := w.j.Snapshot(background)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := restoreSnapshot(s)
		if err == nil {
			err = openAndVerify(copied, w.h)
		}
		if err != nil {
			t.Errorf("restored snapshot: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- w.appendMany("a", 1000, 1060, 2000) }() // these entries need more than one segment
		synctest.Wait()
		if w.j.write.active.Number != 2 {
			t.Errorf("active segment is %d although segment 1 is not sealed", w.j.write.active.Number)
		}
		release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.j.write.active.Number < 3 || !w.j.store.segment(1).Sealed.Load() {
			t.Errorf("active segment is %d, want at least 3, and segment 1 must be sealed", w.j.write.active.Number)
		}
		if err := w.h.verifyOpen(w); err != nil {
			t.Error(err)
		}
	})
}

// The power is cut at every call while the index of a full segment is missing and groups of the
// next segment are acknowledged. Nothing acknowledged is lost, a check finds no damage, and the
// opening seals the older segment.
func TestCrashWhileSealing(t *testing.T) {
	var images []image
	collect := func(fs *faulty.FS, h *history, at string) {
		for _, loss := range faulty.Losses {
			images = append(images, image{at + ", " + loss.String(), fs.Crash(loss, rand.New(rand.NewPCG(3, 3))), h.copy()})
		}
	}
	sealHeld(t, func(fs *faulty.FS, w *world, release func()) {
		collect(fs, w.h, "the index is missing")
		images = append(images, image{"killed while sealing", fs.Kill(), w.h.copy()})
		var hooked bool
		fs.OnCall(func(c faulty.Call) error {
			if isSeal(c) || c.Kind == faulty.Sync {
				collect(fs, w.h, c.String())
				hooked = true
			}
			return nil
		})
		release()
		synctest.Wait()
		if err := w.append("a", 500, 100); err != nil || !hooked {
			t.Fatal(err)
		}
		fs.OnCall(nil)
	})
	for i, im := range images {
		if faulty.LeftOut(i) {
			continue
		}
		report, err := repair.Check(im.fs, repair.CheckOptions{})
		if err != nil || len(report.Damages) > 0 {
			t.Fatalf("%s: check: %v, %+v", im.at, err, report)
		}
		for _, nested := range verifyImage(t, im, true) {
			verifyImage(t, nested, false)
		}
		if t.Failed() {
			return
		}
	}
}

// A group at the end of a full segment was synced before the next segment got a group. So if such a
// group is not valid, this is damage and not a write that a crash cut short. Opening refuses the
// journal, and a check reports the loss.
func TestDamageWhileSealing(t *testing.T) {
	var fs *faulty.FS
	var end int64
	sealHeld(t, func(running *faulty.FS, w *world, release func()) {
		fs, end = running.Crash(faulty.LoseAll, nil), w.j.store.segment(1).End
	})
	for name, damage := range map[string]func(b []byte){
		"a bit of the last group is flipped":          func(b []byte) { b[end-100] ^= 8 },
		"the last groups are zeros":                   func(b []byte) { clear(b[end-5000:]) },
		"the last groups and the watermark are zeros": func(b []byte) { clear(b[end-5000:]); clear(b[watermarkAt:segments.DataStart]) },
		"all groups and the watermark are zeros":      func(b []byte) { clear(b[segments.DataStart:]); clear(b[watermarkAt:segments.DataStart]) },
	} {
		hurt := fs.Crash(faulty.LoseAll, nil)
		b := slices.Clone(hurt.Files()[segments.Name(1)])
		damage(b)
		put(hurt, segments.Name(1), b)
		if j, err := Open(hurt, small); err == nil {
			j.Close()
			t.Errorf("%s: Open accepts the journal", name)
		}
		report, err := repair.Check(hurt, repair.CheckOptions{})
		if err != nil || !slices.ContainsFunc(report.Damages, func(d repair.Damage) bool {
			return d.Fate == repair.Lost || d.Fate == repair.Unknown || d.Fate == repair.Mended
		}) {
			t.Errorf("%s: the check reports no loss: %v, %+v", name, err, report)
		}
	}
}

// A crash comes after a segment became full and before the next segment got a group. The next
// opening seals the full segment.
func TestCrashBeforeFirstGroup(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	fs.OnCall(func(c faulty.Call) error {
		if c.Name == segments.Name(2) && c.Kind == faulty.Write && c.Off == segments.DataStart && c.Len < 10_000 || isSeal(c) {
			return errors.New("power cut")
		}
		return nil
	})
	for seq := weir.Seq(1); ; seq++ {
		if err := w.append("a", seq, 2000); err != nil {
			break
		}
	}
	after := fs.Crash(faulty.LoseAll, nil)
	fs.OnCall(nil)
	w.j.Close()
	if report, err := repair.Check(after, repair.CheckOptions{}); err != nil || len(report.Damages) > 0 {
		t.Fatalf("check: %v, %+v", err, report)
	}
	j, err := Open(after, small)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if s := j.store.segment(1); !s.Sealed.Load() || j.commit.active != nil {
		t.Errorf("segment 1 sealed: %t, want true; active segment %v, want none", s.Sealed.Load(), j.commit.active)
	}
	if err := h.verify(j); err != nil {
		t.Error(err)
	}
}

// The memory for the indexes of segments with many small records is freed when segments with few
// large records follow.
func TestIndexBufferShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faulty.New(), newHistory())
		defer w.j.Close()
		if err := w.create("a", "x"); err != nil {
			t.Fatal(err)
		}
		seq := weir.Seq(0)
		fill := func(count uint64, size int) (index int) { // fills as many segments
			for last := w.j.write.active.Number + count; w.j.write.active.Number < last; {
				index = max(index, len(w.j.commit.active.Slots))
				seq++
				if err := w.append("a", seq, size); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // until the full segment is sealed
			}
			return index
		}
		many := fill(3, 1)
		few := fill(3, 16<<10)
		if many < 40*few {
			t.Fatalf("the index of small records has %d bytes, that of large ones %d: the test needs more of a difference", many, few)
		}
		kept := cap(w.j.commit.active.Slots)
		if b := w.j.slots.Load(); b != nil {
			kept += cap(*b)
		}
		if kept > many/4 {
			t.Errorf("index buffers of %d bytes are kept, want about %d", kept, 2*few)
		}
	})
}
