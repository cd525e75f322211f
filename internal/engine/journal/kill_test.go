package journal

import (
	"fmt"
	"maps"
	"sync"
	"syscall"
	"testing"

	"weir/internal/disk/faulty"
	"weir/internal/engine"
)

// contentOf reads all documents and all entries of a journal. It returns one text per document key.
func contentOf(j *Journal) (map[string]string, error) {
	docs, err := j.List(background, "", "", 1<<30)
	all := map[string]string{}
	for _, d := range docs {
		l, err := j.Open(background, d.Created, &fixed{})
		if err != nil {
			return nil, err
		}
		text := fmt.Sprintf("%s at %d, note %q:", d.Value, d.Revision, l.(*handle).noteInMemory())
		err = l.Scan(background, 0, 0, func(e *engine.Entry) bool {
			text += fmt.Sprintf(" %d (%d)", e.Seq, len(e.Payload))
			return true
		})
		if err != nil {
			return nil, err
		}
		l.Close()
		all[d.Key] = text
	}
	return all, err
}

// TestKilledThenPowerCut runs a script and, before every call that changes the disk, simulates that
// the process is killed. A second process opens the journal on the same running machine, and then
// the power is cut. The second process finds data that the first process wrote but did not sync. It
// must sync this data before clients can read the data. Otherwise the power cut would lose data
// that clients have read. The journal must open again afterwards, even if the second process wrote
// more.
func TestKilledThenPowerCut(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	killed := killImages(t, fs, h)
	for i, im := range killed {
		if faulty.LeftOut(i) {
			continue
		}
		j, err := Open(im.fs, small)
		if err != nil {
			t.Fatalf("%s: %v", im.at, err)
		}
		if err := im.hist.verify(j); err != nil {
			t.Fatalf("%s: %v", im.at, err)
		}
		before, err := contentOf(j)
		if err != nil {
			t.Fatalf("%s: %v", im.at, err)
		}
		cut := im.fs.Crash(faulty.LoseAll, nil)
		if i%5 == 0 {
			if err := writeMore(j, im.hist); err != nil {
				t.Fatalf("%s: writing more in the second process: %v", im.at, err)
			}
			if err := openAndVerify(im.fs.Crash(faulty.LoseAll, nil), im.hist); err != nil {
				t.Fatalf("%s, then more writes, then a power cut: %v", im.at, err)
			}
		}
		j.Close()
		if j, err = Open(cut, small); err != nil {
			t.Fatalf("%s, then a power cut: %v", im.at, err)
		}
		after, err := contentOf(j)
		if err != nil || !maps.Equal(before, after) {
			t.Fatalf("%s: the second process served %v, but after the power cut the journal has %v, %v", im.at, before, after, err)
		}
		j.Close()
	}
	t.Logf("killed %d times", len(killed))
}

// killImages runs the script. For each call that changes the disk, it returns the disk that the
// next process would find if the process were killed just before that call.
func killImages(t *testing.T, fs *faulty.FS, h *history) []image {
	t.Helper()
	var mu sync.Mutex
	var images []image
	fs.OnCall(func(c faulty.Call) error {
		switch c.Kind {
		case faulty.Read, faulty.Open, faulty.List, faulty.Lock:
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		images = append(images, image{fmt.Sprintf("killed before %v %d of %s", c.Kind, c.N, c.Name), fs.Kill(), h.copy()})
		return nil
	})
	w, err := openWorld(fs, h)
	if err == nil {
		err = script(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.j.Close()
	return images
}

// writeMore writes enough entries to fill two more segments.
func writeMore(j *Journal, h *history) error {
	w := &world{j: j, h: h, logs: map[string]engine.Log{}}
	if err := w.create("z", "after"); err != nil {
		return err
	}
	return w.appendMany("z", 1, 60, 1500)
}

// TestFailedSyncThenRestart restarts the process after a failed sync, without restarting the
// machine. The kernel then still returns the written pages when they are read, but never writes
// them to the disk by itself. Everything that the restarted process serves must survive a power
// cut.
func TestFailedSyncThenRestart(t *testing.T) {
	for k := 1; ; k += faulty.Step() {
		fs, h := faulty.New(), newHistory()
		fs.FailCall(faulty.Sync, k, syscall.EIO)
		w, err := openWorld(fs, h)
		if err == nil {
			script(w)
			w.j.Close()
		}
		if fs.Calls(faulty.Sync) < k {
			t.Logf("%d syncs", k-1)
			return
		}
		next := fs.Kill()
		j, err := Open(next, small)
		if err != nil {
			t.Fatalf("sync %d failed, then a restart: %v", k, err)
		}
		before, err := contentOf(j)
		if err != nil {
			t.Fatal(err)
		}
		cut := next.Crash(faulty.LoseAll, nil)
		j.Close()
		if j, err = Open(cut, small); err != nil {
			t.Fatalf("sync %d failed, then a restart and a power cut: %v", k, err)
		}
		after, err := contentOf(j)
		if err != nil || !maps.Equal(before, after) {
			t.Fatalf("sync %d failed: the restarted process served %v, but after the power cut the journal has %v, %v", k, before, after, err)
		}
		j.Close()
	}
}
