package journal

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
)

// TestReadWhileReclaiming scans and opens logs while the reclaimer, which frees the space of trimmed
// entries, empties, recycles and overwrites their segments. Readers never see wrong bytes.
func TestReadWhileReclaiming(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	defer w.j.Close()
	if err := errors.Join(w.create("kept", "x"), w.create("moving", "x"), w.create("keyed", "x")); err != nil {
		t.Fatal(err)
	}
	keyed, err := w.j.Get(background, "keyed")
	if err != nil {
		t.Fatal(err)
	}
	k, appended := &world{w.j, h, map[string]engine.Log{"keyed": w.logs["keyed"]}}, 0
	delete(w.logs, "keyed")
	var wg sync.WaitGroup
	var stop atomic.Bool
	right := func(key string, size int) func(*engine.Entry) bool {
		return func(e *engine.Entry) bool {
			if !bytes.Equal(e.Payload, payloadOf(key, e.Seq, size)) {
				t.Errorf("entry %d of %s: payload differs from what was appended", e.Seq, key)
			}
			return !t.Failed()
		}
	}
	reader := func(f func() error) {
		wg.Go(func() {
			for !stop.Load() && !t.Failed() {
				if err := f(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	reader(func() error { return w.logs["kept"].Scan(background, 0, 0, right("kept", 400)) })
	reader(func() error { return w.logs["moving"].Scan(background, 0, 0, right("moving", 900)) })
	reader(func() error { // opening a log reads all entries that have a key, without their payloads
		k.logs["keyed"].Close()
		judge, count := &fixed{}, appended
		l, err := w.j.Open(background, keyed.Created, judge)
		if err != nil || len(judge.restored) != count {
			return fmt.Errorf("restored %d entries, want %d: %w", len(judge.restored), count, err)
		}
		for _, e := range judge.restored {
			want := engine.Header{Key: fmt.Sprintf("%.*s", int(e.Seq%3), "ab")}.Restored()
			if e.KeyDigest != want.KeyDigest || e.KeySize != want.KeySize {
				return fmt.Errorf("entry %d restored with key %x of size %d, want %x", e.Seq, e.KeyDigest, e.KeySize, want.KeyDigest)
			}
		}
		k.logs["keyed"] = l
		appended++
		return k.append("keyed", weir.Seq(appended), 300)
	})
	for seq := weir.Seq(1); seq <= 1200 && !t.Failed(); seq++ {
		if err := w.append("moving", seq, 900); err != nil {
			t.Fatal(err)
		}
		if seq%20 == 0 { // entries of "kept" stay much longer than those of "moving", so segments become sparse
			err = errors.Join(w.append("kept", seq, 400), w.trim("moving", seq-min(seq, 20), ""), w.trim("kept", seq-min(seq, 800), ""))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	wg.Wait()
	k.logs["keyed"].Close()
	if err := w.j.exact(); err != nil {
		t.Error(err)
	}
	if s := w.j.Stats(); s.Copied == 0 {
		t.Errorf("the reclaimer copied nothing: %+v", s)
	}
	if err := h.verifyOpen(w); err != nil {
		t.Error(err)
	}
}

// TestDiskFailsWhileWaiting makes the disk fail while many appends wait: for a new segment, for a
// sync, or for both. Every append returns, and the journal can be closed.
func TestDiskFailsWhileWaiting(t *testing.T) {
	for _, c := range []struct {
		name    string
		holds   func(faulty.Call) bool // calls that block until the disk fails
		failing func(faulty.Call) bool // calls that fail once the disk has failed
	}{
		{"preparer", func(c faulty.Call) bool { return c.Name == temporary && c.Kind == faulty.Write },
			func(c faulty.Call) bool { return c.Name == temporary }},
		{"writer", func(c faulty.Call) bool { return c.Name != temporary && c.Kind == faulty.Sync },
			func(c faulty.Call) bool { return c.Name != temporary && c.Kind == faulty.Sync }},
		{"writer while the preparer is slow", func(c faulty.Call) bool { return c.Kind == faulty.Sync || c.Name == temporary },
			func(c faulty.Call) bool { return c.Name != temporary }},
		{"everything", func(c faulty.Call) bool { return c.Kind == faulty.Sync || c.Name == temporary },
			func(faulty.Call) bool { return true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			synctest.Test(t, func(t *testing.T) {
				fs, h := faulty.New(), newHistory()
				w := newWorld(t, fs, h)
				if err := errors.Join(w.create("a", "x"), w.append("a", 1, 100)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				failed := make(chan struct{})
				fs.OnCall(func(call faulty.Call) error {
					if c.holds(call) {
						<-failed
					}
					select {
					case <-failed:
						if c.failing(call) && call.Kind != faulty.Read {
							return syscall.EIO
						}
					default:
					}
					return nil
				})
				errs := make(chan error, 300)
				for seq := weir.Seq(2); seq < 300; seq++ {
					go func() { errs <- w.append("a", seq, 1000) }()
				}
				synctest.Wait()
				go func() { time.Sleep(time.Second); close(failed) }()
				refused := 0
				want, state := engine.ErrReadOnly, engine.ReadOnly
				if c.name == "preparer" { // the journal stays full until the preparer finds a file that can be written
					want, state = engine.ErrFull, engine.Full
				}
				for seq := 2; seq < 300; seq++ {
					if err := <-errs; errors.Is(err, want) {
						refused++
					} else if err != nil {
						t.Error(err)
					}
				}
				if s := w.j.Status(); refused == 0 || s.State != state {
					t.Errorf("after the disk failed: %d appends refused, want some; status %v, want %v", refused, s, state)
				}
				if err := w.append("a", 1000, 1000); !errors.Is(err, want) {
					t.Error(err)
				}
				w.j.Close()
				fs.OnCall(nil)
				if err := openAndVerify(fs.Crash(faulty.LoseAll, nil), h); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestStorm creates, updates, appends to, trims and deletes many documents from 50 goroutines.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("takes too long for a short run")
	}
	j, err := Open(faulty.New(), Options{SegmentSize: 1 << 20, ReclaimRate: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if err := storm(j, i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := j.exact(); err != nil {
		t.Error(err)
	}
	if docs, err := j.List(background, "", "", 1<<30); err != nil || len(docs) != 50 {
		t.Errorf("%d documents are left, want 50: %v", len(docs), err)
	}
}

func storm(j *Journal, i int) error {
	kept, err := j.Create(background, fmt.Sprint("kept ", i), nil)
	if err != nil {
		return err
	}
	for n := range faulty.Cases(400) {
		d, err := j.Create(background, fmt.Sprintf("%d/%d", i, n), []byte("value"))
		if err != nil {
			return err
		}
		l, err := j.Open(background, d.Created, &fixed{})
		if err != nil {
			return err
		}
		_, updated := j.Update(background, d.Key, []byte("new"), d.Revision)
		if err := errors.Join(updated, l.Append(background, batchOf(1, "x")), l.Trim(background, 2, []byte("note"))); err != nil {
			return err
		}
		if err := errors.Join(j.Delete(background, d.Key, 0), l.Close()); err != nil {
			return err
		}
	}
	_, err = j.Update(background, kept.Key, []byte("end"), kept.Revision)
	return err
}
