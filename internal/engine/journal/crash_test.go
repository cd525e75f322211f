package journal

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"weir"
	"weir/internal/disk/faulty"
)

// script makes a journal do everything it can: groups of one and of many records, large and small
// records, full segments, updates, trims, deletions, and the reclaiming that follows. It stops at
// the first error.
func script(w *world) error {
	for _, step := range []func() error{
		func() error { return w.create("a", "one") },
		func() error { return w.create("b", "two") },
		func() error { return w.appendMany("a", 1, 20, 300) },
		func() error { return w.update("b", "three") },
		func() error { return w.append("b", 5, 9000) },
		func() error { return w.append("b", 2, 0) },
		func() error { return w.appendMany("a", 21, 60, 900) },
		func() error { return w.trim("a", 15, "low 15") },
		func() error { return w.create("c", "four") },
		func() error { return w.appendMany("c", 1, 30, 2000) },
		func() error { return w.remove("b") },
		func() error { return w.create("b", "again") },
		func() error { return w.append("b", 1, 100) },
		func() error { return w.trim("c", 31, "all gone") },
		func() error { return w.appendMany("a", 61, 90, 1500) },
		func() error { return w.trim("a", 70, "low 70") },
		func() error { return w.append("c", 31, 10) },
		func() error { return w.appendMany("b", 2, 25, 1200) },
		func() error { return w.remove("c") },
		func() error { return w.append("b", 26, 40) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// appendMany appends entries with the sequences in a range, all at the same time.
func (w *world) appendMany(key string, from, to weir.Seq, size int) error {
	var wg sync.WaitGroup
	errs := make(chan error, to-from+1)
	for seq := from; seq <= to; seq++ {
		wg.Go(func() { errs <- w.append(key, seq, size) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// image is a disk as it may look after a power cut, with the history up to that moment.
type image struct {
	at   string
	fs   *faulty.FS
	hist *history
}

// TestCrashAtEveryCall cuts the power before every write, sync, rename and removal of the script,
// with every pattern of losing unsynced bytes. Everything acknowledged survives, and nothing is
// partial or duplicated. The journal opens without help, even if the power is cut again while it
// opens.
func TestCrashAtEveryCall(t *testing.T) {
	images := crashImages(t, faulty.New(), newHistory(), func(w *world) error { return script(w) })
	if len(images) < 300 {
		t.Fatalf("only %d power cuts were simulated", len(images))
	}
	nested := 0
	for i, im := range images {
		if faulty.LeftOut(i) {
			continue
		}
		again := verifyImage(t, im, i%7 == 0)
		for _, im := range again {
			verifyImage(t, im, false)
		}
		nested += len(again)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d crashes, and %d more while opening after a crash", len(images), nested)
}

// crashImages runs f on a journal. For each call that changes the disk, it returns images of power
// cuts just before that call.
func crashImages(t *testing.T, fs *faulty.FS, h *history, f func(*world) error) []image {
	t.Helper()
	return crashImagesOf(fs, h, func() {
		w, err := openWorld(fs, h)
		if err == nil {
			err = f(w)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.j.Close()
	})
}

// crashImagesOf calls the function run. For each call that changes the disk, it returns images of
// power cuts just before that call.
func crashImagesOf(fs *faulty.FS, h *history, run func()) []image {
	var mu sync.Mutex
	var images []image
	rng := rand.New(rand.NewPCG(7, 7))
	fs.OnCall(func(c faulty.Call) error {
		switch c.Kind {
		case faulty.Read, faulty.Open, faulty.List, faulty.Lock:
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		hist := h.copy()
		for _, loss := range faulty.Losses {
			images = append(images, image{fmt.Sprintf("%v %d of %s, %v", c.Kind, c.N, c.Name, loss), fs.Crash(loss, rng), hist})
		}
		return nil
	})
	run()
	fs.OnCall(nil)
	return images
}

// verifyImage opens an image and verifies it against its history. If the parameter again is true,
// it also returns images of power cuts that come while the image is opened and used.
func verifyImage(t *testing.T, im image, again bool) (images []image) {
	t.Helper()
	if again {
		h := im.hist.copy()
		fs := im.fs.Crash(faulty.LoseNothing, nil)
		images = crashImages(t, fs, h, func(w *world) error { return w.create("z", "after") })
		for i := range images {
			images[i].at = im.at + ", then " + images[i].at
		}
	}
	j, err := Open(im.fs, small)
	if err != nil {
		t.Errorf("%s: %v", im.at, err)
		return nil
	}
	defer j.Close()
	if err := im.hist.verify(j); err != nil {
		t.Errorf("%s: %v", im.at, err)
	}
	return images
}
