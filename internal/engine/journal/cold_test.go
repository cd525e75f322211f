package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/repair"
	"weir/internal/engine/journal/segments"
)

// mixture appends to six logs. Two of them keep their entries for longer than the others. It also
// deletes these two now and then, so that the reclaimer, which copies entries that are still
// needed, also meets entries of deleted logs. It tells the rounds from first to before end; round 0
// creates the logs. It calls the function rest after each round, and stops at the first error.
func mixture(w *world, first, end weir.Seq, rest func()) error {
	const logs = 6
	var errs []error
	for i := 0; i < logs && first == 0; i++ {
		errs = append(errs, w.create(fmt.Sprint("log", i), "x"))
	}
	for round := first; round < end; round++ {
		for i := range logs {
			key, first := fmt.Sprint("log", i), 1+40*round
			errs = append(errs, w.appendMany(key, first, first+39, 500))
			switch {
			case i > 1:
				errs = append(errs, w.trim(key, first+30, "short"))
			case round > 6:
				errs = append(errs, w.trim(key, first-200, "long"))
			}
		}
		if round%5 == 4 {
			key := fmt.Sprint("log", round%2)
			errs = append(errs, w.remove(key), w.create(key, "again"))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		rest()
	}
	return nil
}

// verifyAndCheck verifies a journal against its history, and checks every byte of it.
func verifyAndCheck(fs *faulty.FS, h *history) error {
	if err := openAndVerify(fs, h); err != nil {
		return err
	}
	r, err := repair.Check(fs, repair.CheckOptions{})
	if err == nil && (len(r.Damages) > 0 || r.Orphans > 0) {
		err = fmt.Errorf("damages %+v, %d orphans", r.Damages, r.Orphans)
	}
	return err
}

// TestColdSegments cuts the power before calls on a cold segment, which the reclaimer fills with
// copies of long-lived entries. It also cuts the power before the first calls after that segment
// gets its final name, and now and then before other calls. Nothing acknowledged is lost, and
// nothing trimmed or deleted returns.
func TestColdSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // on the real clock, a slow machine would make the journal seem idle
		coldSegments(t, func() { time.Sleep(calm * 3 / 5) })
	})
}

func coldSegments(t *testing.T, rest func()) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(3, 3))
	adopted, cuts, last := 0, 0, 0
	fs.OnCall(func(c faulty.Call) error {
		mu.Lock()
		defer mu.Unlock()
		switch c.Kind {
		case faulty.Read, faulty.Open, faulty.List, faulty.Lock:
			return nil
		case faulty.Rename:
			if c.Name == coldFile {
				adopted++
				last = 8
			}
		}
		if last--; last < 0 && c.Name != coldFile && rng.IntN(150) > 0 || c.Name == coldFile && c.Kind == faulty.Write && rng.IntN(8) > 0 {
			return nil
		}
		hist := h.copy()
		for _, loss := range faulty.Losses {
			if cuts++; faulty.LeftOut(cuts) {
				continue
			}
			if err := verifyAndCheck(fs.Crash(loss, rng), hist); err != nil && !t.Failed() {
				t.Errorf("power cut before %v %d of %s, %v: %v", c.Kind, c.N, c.Name, loss, err)
			}
		}
		return nil
	})
	if err := mixture(w, 0, 14, rest); err != nil {
		t.Fatal(err)
	}
	fs.OnCall(nil)
	if err := h.verifyOpen(w); err != nil {
		t.Error(err)
	}
	w.j.Close()
	if err := verifyAndCheck(fs.Crash(faulty.LoseAll, nil), h); err != nil {
		t.Error(err)
	}
	if adopted < 2 || cuts < 100 {
		t.Errorf("%d cold segments were adopted and %d power cuts simulated, want at least 2 and 100", adopted, cuts)
	}
	t.Logf("%d cold segments adopted, %d power cuts", adopted, cuts)
}

// TestColdFaults makes calls on cold segments fail. The journal copies the entries to the active
// segment instead, and accepts appends all the time.
func TestColdFaults(t *testing.T) {
	for i, fault := range []error{syscall.EIO, syscall.ENOSPC} {
		for k, kind := range []faulty.Kind{faulty.Write, faulty.Create, faulty.Sync, faulty.Rename} {
			if faulty.LeftOut(4*i + k) {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				coldFault(t, kind, fault, func() { time.Sleep(calm * 3 / 5) })
			})
		}
	}
}

func coldFault(t *testing.T, kind faulty.Kind, fault error, rest func()) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	var calls atomic.Int64
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind == kind && (c.Name == coldFile || c.To == coldFile) && calls.Add(1)%3 > 0 {
			return fault
		}
		return nil
	})
	if err := mixture(w, 0, 20, rest); err != nil {
		t.Fatalf("%v calls fail with %v: the workload returned %v", kind, fault, err)
	}
	if s := w.j.Status(); s.State != engine.Ready {
		t.Errorf("%v calls fail with %v: status %v, want ready", kind, fault, s)
	}
	fs.OnCall(nil)
	w.j.Close()
	if err := verifyAndCheck(fs.Crash(faulty.LoseAll, nil), h); err != nil {
		t.Errorf("%v calls fail with %v: after a crash: %v", kind, fault, err)
	}
	t.Logf("%v calls fail with %v: %d calls", kind, fault, calls.Load())
}

// TestDeletionKnowsColdSegment deletes a document while a cold segment is being filled. The cold
// segment may hold entries of the document's log. So the tombstone (the record of the deletion)
// must outlive the cold segment.
func TestDeletionKnowsColdSegment(t *testing.T) {
	w := newWorld(t, faulty.New(), newHistory())
	defer w.j.Close()
	w.j.reclaim.building.Store(9)
	if err := errors.Join(w.create("a", "x"), w.remove("a")); err != nil {
		t.Fatal(err)
	}
	w.j.store.mu.RLock()
	defer w.j.store.mu.RUnlock()
	if d, ok := w.j.store.deleted.Get("a"); !ok || d.birth != 9 {
		t.Errorf("tombstone %+v, want one whose birth, the newest segment that it must outlive, is 9", d)
	}
}

// TestColdAdoptionFails makes a write return an error although its bytes reach the disk. The write
// is one of the first after a cold segment got its name. A manifest (a list of the journal's
// segments) that includes the cold segment may then be on the disk, so the cold segment must stay.
func TestColdAdoptionFails(t *testing.T) {
	for skip := range 4 {
		synctest.Test(t, func(t *testing.T) { // as in TestColdSegments
			coldAdoptionFails(t, skip, func() { time.Sleep(calm * 3 / 5) })
		})
	}
}

func coldAdoptionFails(t *testing.T, skip int, rest func()) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	var left atomic.Int64
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind == faulty.Rename && c.Name == coldFile {
			left.CompareAndSwap(0, int64(skip)+2)
		}
		if c.Kind == faulty.Write && c.Off >= segments.DataStart && c.Name != temporary && left.Load() > 0 && left.Add(-1) == 1 {
			return faulty.Partial{Err: syscall.EIO, Bytes: c.Len}
		}
		return nil
	})
	if err := mixture(w, 0, 20, rest); !errors.Is(err, engine.ErrReadOnly) {
		t.Fatal(err)
	}
	w.j.Close()
	fs.OnCall(nil)
	for _, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
		if err := verifyAndCheck(fs.Crash(loss, nil), h.copy()); err != nil {
			t.Errorf("power cut, %v: %v", loss, err)
		}
	}
}
