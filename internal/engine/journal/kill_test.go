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

// shown returns everything that a journal serves, as text by document key.
func shown(j *Journal) (map[string]string, error) {
	docs, err := j.List(background, "", "", 1<<30)
	all := map[string]string{}
	for _, d := range docs {
		l, err := j.Open(background, d.Created, &fixed{})
		if err != nil {
			return nil, err
		}
		text := fmt.Sprintf("%s at %d, note %q:", d.Value, d.Revision, l.(*handle).note)
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

// TestKilledThenPowerCut kills the process before every call of the script, opens the journal in a
// second process on the same running machine, and then cuts the power. The first process had not
// synced everything that the second one found and served, so the second one must make it durable
// before serving it. The journal opens again, even if the second process had continued to write.
func TestKilledThenPowerCut(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	killed := kills(t, fs, h)
	for i, im := range killed {
		j, err := Open(im.fs, small)
		if err != nil {
			t.Fatalf("%s: %v", im.at, err)
		}
		if err := im.hist.verify(j); err != nil {
			t.Fatalf("%s: %v", im.at, err)
		}
		before, err := shown(j)
		if err != nil {
			t.Fatalf("%s: %v", im.at, err)
		}
		cut := im.fs.Crash(faulty.LoseAll, nil)
		if i%5 == 0 {
			if err := writeMore(j, im.hist); err != nil {
				t.Fatalf("%s: continue: %v", im.at, err)
			}
			if err := openAndVerify(im.fs.Crash(faulty.LoseAll, nil), im.hist); err != nil {
				t.Fatalf("%s, power cut after more writes: %v", im.at, err)
			}
		}
		j.Close()
		if j, err = Open(cut, small); err != nil {
			t.Fatalf("%s, then power cut: %v", im.at, err)
		}
		after, err := shown(j)
		if err != nil || !maps.Equal(before, after) {
			t.Fatalf("%s: served %v, after the power cut %v, %v", im.at, before, after, err)
		}
		j.Close()
	}
	t.Logf("killed %d times", len(killed))
}

// kills runs the script and returns what the next process finds if the process is killed before
// each call that changes the disk.
func kills(t *testing.T, fs *faulty.FS, h *history) []image {
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

// writeMore fills two more segments.
func writeMore(j *Journal, h *history) error {
	w := &world{j: j, h: h, logs: map[string]engine.Log{}}
	if err := w.create("z", "after"); err != nil {
		return err
	}
	return w.many("z", 1, 60, 1500)
}

// TestFailedSyncThenRestart restarts the process after a failed sync, without restarting the
// machine: the kernel still serves the written pages, but will never write them by itself.
func TestFailedSyncThenRestart(t *testing.T) {
	for k := 1; ; k++ {
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
			t.Fatalf("sync %d: %v", k, err)
		}
		before, err := shown(j)
		if err != nil {
			t.Fatal(err)
		}
		cut := next.Crash(faulty.LoseAll, nil)
		j.Close()
		if j, err = Open(cut, small); err != nil {
			t.Fatalf("sync %d: after the power cut: %v", k, err)
		}
		after, err := shown(j)
		if err != nil || !maps.Equal(before, after) {
			t.Fatalf("sync %d: served %v, after the power cut %v, %v", k, before, after, err)
		}
		j.Close()
	}
}
