package journal

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
)

// openScrubbed fills several segments with entries of two logs. Then it opens the journal again
// with a scrub, a background check of all sealed segments.
func openScrubbed(t *testing.T, fs *faulty.FS, o Options) *world {
	t.Helper()
	o.SegmentSize, o.ReclaimRate = small.SegmentSize, small.ReclaimRate
	w := newWorld(t, fs, newHistory())
	for _, key := range []string{"a", "b"} {
		if err := w.create(key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	for seq := weir.Seq(1); seq <= 200; seq++ {
		for _, key := range []string{"a", "b"} {
			if err := w.append(key, seq, 900); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.j.Close()
	j, err := Open(fs, o)
	if err != nil {
		t.Fatal(err)
	}
	for key := range w.logs {
		w.logs[key] = attach(t, j, key)
	}
	w.j = j
	return w
}

// spotOf returns where the record of an entry is stored.
func spotOf(t *testing.T, w *world, key string, seq weir.Seq) spot {
	t.Helper()
	h := w.logs[key].(*handle)
	h.mu.RLock()
	defer h.mu.RUnlock()
	it, ok := h.index.Find(seq)
	if !ok {
		t.Fatalf("no entry %d of %s", seq, key)
	}
	s := h.spot(it)
	s.seg.release()
	return s
}

// TestScrubFindsDamage damages a running journal in several ways. Each pass of the scrub reports
// the damaged records that are needed, by log and sequence. Trimmed records are not needed.
func TestScrubFindsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		var mu sync.Mutex
		var told []Finding
		w := openScrubbed(t, fs, Options{ScrubRate: 1 << 20, ScrubEvery: time.Hour, Damaged: func(f []Finding) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, f...)
		}})
		defer w.j.Close()
		findings := func() []Finding {
			t.Helper()
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			got := w.j.Stats().Scrub.Findings
			mu.Lock()
			defer mu.Unlock()
			if len(got) > 0 && !slices.Contains(told, got[0]) {
				t.Errorf("Stats reports %+v, but the callback Damaged got %+v", got, told)
			}
			told = nil
			return got
		}
		if got := findings(); len(got) > 0 {
			t.Fatalf("findings in an undamaged journal: %+v", got)
		}
		first := spotOf(t, w, "a", 10)
		for seq := weir.Seq(10); seq <= 12; seq++ {
			s := spotOf(t, w, "a", seq)
			fs.Flip(s.seg.Name, int64(s.Place.Off)+200, 3) // a bit in the payload
		}
		got := findings()
		if len(got) != 1 || got[0].Document != "a" || got[0].From != 10 || got[0].To != 12 || got[0].Records != 3 || got[0].What != "batch" ||
			got[0].File != first.seg.Name || got[0].Offset != int64(first.Place.Off) {
			t.Fatalf("findings after three batches were damaged: %+v", got)
		}
		unreadable := spotOf(t, w, "b", 60)
		fs.OnCall(func(c faulty.Call) error {
			at := int64(unreadable.Place.Off) + 100
			if c.Kind == faulty.Read && c.Name == unreadable.seg.Name && c.Off <= at && at < c.Off+int64(c.Len) {
				return syscall.EIO
			}
			return nil
		})
		if got = findings(); len(got) != 2 || got[1].Document != "b" || got[1].From != 60 || got[1].To != 60 {
			t.Fatalf("findings after another batch became unreadable: %+v", got)
		}
		fs.OnCall(nil)
		fs.Flip(unreadable.seg.Name, small.SegmentSize-footerLen-5, 1)
		if got = findings(); len(got) != 2 || got[1].What != "index" || got[1].Records != 0 {
			t.Fatalf("findings after an index was damaged: %+v", got)
		}
		fs.Flip(unreadable.seg.Name, small.SegmentSize-footerLen-5, 1)
		if err := w.trim("a", 20, "note"); err != nil {
			t.Fatal(err)
		}
		for _, f := range findings() {
			if f.Records > 0 {
				t.Errorf("the damaged batches are trimmed, but reported as needed: %+v", f)
			}
		}
	})
}

// TestScrubRate counts the bytes that the scrub reads. The scrub never reads more than the rate
// allows, and much less while the journal is under load. Without load only the scrub reads from the
// disk. Under load the reclaimer reads too, so there the test uses the scrub's own count.
func TestScrubRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, burst = 64 << 10, scrubStep + 64<<10 // the scrub may read one step and the rest of a segment without a pause
		var read atomic.Int64
		fs := faulty.New()
		w := openScrubbed(t, fs, Options{ScrubRate: rate, ScrubEvery: time.Millisecond})
		defer w.j.Close()
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.Read {
				read.Add(int64(c.Len))
			}
			return nil
		})
		during := func(d time.Duration) (disk, scrub int64) {
			from, counted := read.Load(), w.j.Stats().Scrub.Read
			time.Sleep(d)
			synctest.Wait()
			return read.Load() - from, int64(w.j.Stats().Scrub.Read - counted)
		}
		during(time.Minute) // the reclaimer has nothing to do any more
		disk, minute := during(time.Minute)
		if disk > 60*rate*5/4+burst || minute > 60*rate+burst || minute < 60*rate/2 { // 5/4, because heads of groups are read twice
			t.Errorf("read %d bytes in a minute, and counted %d, want about %d", disk, minute, 60*rate)
		}
		if p := w.j.Stats().Scrub; p.Finished.IsZero() {
			t.Errorf("progress: %+v, want a finished pass", p)
		}
		busy, seq := int64(0), weir.Seq(1000)
		for range 60 {
			for range 30 {
				seq++
				if err := w.append("a", seq, 9000); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.trim("a", seq, ""); err != nil {
				t.Fatal(err)
			}
			_, scrub := during(time.Second)
			busy += scrub
		}
		if busy > minute/2+burst {
			t.Errorf("read %d bytes in a minute under load, %d in a minute without", busy, minute)
		}
	})
}

// TestScrubDuringChanges scrubs all the time while segments are filled, emptied and recycled. It
// finds nothing, and it does not keep segments from being reclaimed.
func TestScrubDuringChanges(t *testing.T) {
	fs := faulty.New()
	w := openScrubbed(t, fs, Options{ScrubRate: 1 << 40, ScrubEvery: time.Nanosecond, Damaged: func(f []Finding) { t.Errorf("found %+v", f) }})
	for seq := weir.Seq(1000); seq < 2000; seq++ {
		key := string("ab"[seq%2])
		if err := w.append(key, seq, 900); err != nil {
			t.Fatal(err)
		}
		if seq%97 == 0 {
			if err := w.trim(key, seq-150, "note"); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := w.j.Stats()
	w.j.Close()
	if s.Freed == 0 || s.Scrub.Read == 0 {
		t.Errorf("%d segments were freed and %d bytes scrubbed, want some of both", s.Freed, s.Scrub.Read)
	}
	if err := openAndVerify(fs.Crash(faulty.LoseAll, nil), w.h); err != nil {
		t.Error(err)
	}
}
