package journal

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/blocks"
	"weir/internal/engine/journal/segments"
)

// removal is a call that removes a part of a file, or the file.
type removal struct {
	faulty.Call
	at time.Time
}

// record returns a hook that records the removals of segment files and counts new files.
func record(mu *sync.Mutex, removals *[]removal, created *int) func(faulty.Call) error {
	return func(c faulty.Call) error {
		mu.Lock()
		defer mu.Unlock()
		_, segment := segments.NumberOf(c.Name)
		switch {
		case c.Kind == faulty.Create && c.Name == temporary:
			*created++
		case segment && (c.Kind == faulty.Remove || c.Kind == faulty.Truncate):
			*removals = append(*removals, removal{c, time.Now()})
		}
		return nil
	}
}

// Under load, the files of a deleted log stay until they are recycled. Once the journal is idle, the
// rest of them are removed, a part at a time and no faster than ReclaimRate.
func TestDeadFilesAreRecycledUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 64 << 10
		fs, h := faulty.New(), newHistory()
		j, err := Open(fs, Options{SegmentSize: small.SegmentSize, ReclaimRate: rate})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{j: j, h: h, logs: map[string]engine.Log{}}
		defer w.j.Close()
		var mu sync.Mutex
		var removals []removal
		created := 0
		if err := errors.Join(w.create("gone", "x"), w.create("kept", "x"), w.appendMany("gone", 1, 60, 6000)); err != nil {
			t.Fatal(err)
		}
		fs.OnCall(record(&mu, &removals, &created))
		if err := w.remove("gone"); err != nil {
			t.Fatal(err)
		}
		for seq := weir.Seq(1); seq <= 20; seq++ {
			if err := w.append("kept", seq, 6000); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		mu.Lock()
		if len(removals) > 0 || created > 0 {
			t.Errorf("under load, %d files were created and these calls removed some: %v", created, removals)
		}
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		fs.OnCall(nil)
		for i, r := range removals {
			if i > 0 && r.at.Sub(removals[i-1].at) < time.Second/8 {
				t.Errorf("%v came %v after the removal of another part", r.Call, r.at.Sub(removals[i-1].at))
			}
		}
		gone := slices.DeleteFunc(slices.Clone(removals), func(r removal) bool { return r.Kind != faulty.Remove })
		if len(gone) == 0 || len(removals) != 8*len(gone) {
			t.Errorf("%d files were removed in %d parts, want at least one, in 8 parts each", len(gone), len(removals))
		}
		w.j.Close()
		if err := openAndVerify(fs, h); err != nil {
			t.Error(err)
		}
	})
}

// On a disk that takes long to remove a part of a file, parts are removed rarely while there is load,
// because no append finishes meanwhile. Once the journal is idle, all of them are removed.
func TestSlowRemovalsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, load = 10 * time.Millisecond, 20 * time.Second
		fs := faulty.New()
		j, err := Open(fs, Options{SegmentSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{j: j, h: newHistory(), logs: map[string]engine.Log{}}
		defer w.j.Close()
		if err := errors.Join(w.create("gone", "x"), w.create("kept", "x"), w.appendMany("gone", 1, 600, 60_000)); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var removals []removal
		created := 0
		note := record(&mu, &removals, &created)
		fs.OnCall(func(c faulty.Call) error {
			if _, segment := segments.NumberOf(c.Name); segment && (c.Kind == faulty.Truncate || c.Kind == faulty.Remove) {
				time.Sleep(slow)
			}
			return note(c)
		})
		if err := w.remove("gone"); err != nil {
			t.Fatal(err)
		}
		seq := weir.Seq(1)
		for begun := time.Now(); time.Since(begun) < load; time.Sleep(100 * time.Millisecond) {
			if err := w.appendMany("kept", seq, seq+1, 60_000); err != nil {
				t.Fatal(err)
			}
			seq += 2
			synctest.Wait()
		}
		mu.Lock()
		if n := len(removals); n == 0 || n > int(load/(removalShare*slow))+1 {
			t.Errorf("under load, %d parts were removed, want at least one and at most one per %v", n, removalShare*slow)
		}
		mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		fs.OnCall(nil)
		if n := w.j.prepare.files(); n > 1 {
			t.Errorf("an hour after the load, %d files that are ready or dead are left, want 1", n)
		}
		w.j.Close()
	})
}

// Compressed files cannot be recycled. On a disk that takes long to remove a part of a file, they are
// removed without long rests under load too, because they would pile up.
func TestSlowRemovalOfCompressedFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		w := newWorld(t, fs, newHistory())
		defer w.j.Close()
		synctest.Wait()
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.Truncate || c.Kind == faulty.Remove {
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
		w.j.prepare.keepSpare(1)
		for number := uint64(998); number <= 999; number++ {
			f, err := fs.Create(segments.Name(number))
			if err != nil {
				t.Fatal(err)
			}
			s := w.j.newSegment(number)
			s.File = blocks.Create(f, s.Seed, small.SegmentSize, &w.j.dir.Cache)
			w.j.prepare.give(s)
		}
		time.Sleep(time.Second)
		fs.OnCall(nil)
		for name := range fs.Files() {
			if number, _ := segments.NumberOf(name); number >= 998 {
				t.Errorf("after a second, %s is not removed", name)
			}
		}
	})
}

// The power is cut while a dead file is being removed, a part at a time. The next opening does not
// recycle what is left of the file.
func TestInterruptedRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		var images []image
		var mu sync.Mutex
		w := newWorld(t, fs, h)
		fs.OnCall(func(c faulty.Call) error {
			if _, segment := segments.NumberOf(c.Name); segment && (c.Kind == faulty.Truncate || c.Kind == faulty.Remove) {
				mu.Lock()
				defer mu.Unlock()
				for _, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
					images = append(images, image{c.String(), fs.Crash(loss, nil), h.copy()})
				}
			}
			return nil
		})
		if err := errors.Join(w.create("gone", "x"), w.create("kept", "x"), w.appendMany("gone", 1, 60, 6000), w.remove("gone")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // until the journal is idle and only the ready segment is left
		w.j.Close()
		fs.OnCall(nil)
		truncated := 0
		for i, im := range images {
			for name, content := range im.fs.Files() {
				if _, segment := segments.NumberOf(name); segment && int64(len(content)) < small.SegmentSize {
					truncated++
				}
			}
			if faulty.LeftOut(i) {
				continue
			}
			w := newWorld(t, im.fs, im.hist)
			d, err := w.j.Get(background, "kept")
			if err == nil {
				w.logs["kept"], err = w.j.Open(background, d.Created, &fixed{})
			}
			for first := weir.Seq(1); first < 50 && err == nil; first += 5 {
				err = w.appendMany("kept", first, first+4, 6000)
				synctest.Wait()
				err = errors.Join(err, verifyAndCheck(im.fs.Crash(faulty.LoseAll, nil), im.hist))
			}
			if w.j.Close(); err != nil {
				t.Fatalf("power cut before %s: %v", im.at, err)
			}
		}
		if truncated == 0 {
			t.Error("no power cut left a part of a file")
		}
	})
}

// A compressed file cannot be recycled. On a full disk it is removed before the next segment is
// prepared, which needs its space.
func TestFullOfCompressedFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		w := newWorld(t, fs, newHistory())
		defer w.j.Close()
		if err := w.create("a", "x"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f, err := fs.Create(segments.Name(999))
		if err == nil {
			err = f.WriteAt(0, make([]byte, small.SegmentSize))
		}
		if err != nil {
			t.Fatal(err)
		}
		s := w.j.newSegment(999)
		s.File = blocks.Create(f, s.Seed, small.SegmentSize, &w.j.dir.Cache)
		fs.Capacity(fs.Size())
		w.j.prepare.mu.Lock()
		w.j.prepare.packed = append(w.j.prepare.packed, s)
		w.j.prepare.mu.Unlock()
		err = nil
		for seq := weir.Seq(1); seq < 19 && err == nil; seq++ {
			err = w.append("a", seq, 6000)
			time.Sleep(retry)
		}
		if err != nil {
			t.Errorf("append on a disk with a compressed file to remove: %v", err)
		}
	})
}
