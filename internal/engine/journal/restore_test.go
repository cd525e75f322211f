package journal

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"

	"weir/internal/disk"
	"weir/internal/disk/faulty"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/repair"
	"weir/internal/engine/journal/segments"
)

// offline returns the disk of a closed journal, and the journal's history.
func offline(t *testing.T) (*faulty.FS, *history) {
	t.Helper()
	fs, h := faulty.New(), newHistory()
	w, err := openWorld(fs, h)
	if err == nil {
		err = script(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.j.Close()
	return fs, h
}

func snapshotOf(t *testing.T, fs *faulty.FS) *Snapshot {
	t.Helper()
	s, err := OpenSnapshot(fs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// In some runs of the restore one disk call fails, in others the power is cut before one call.
// Every call has its turn. Afterwards the directory is empty, or Open refuses it, or it is a
// complete journal. Open never accepts an incomplete journal.
func TestRestoreFails(t *testing.T) {
	source, h := offline(t)
	sound := func(what string, dir *faulty.FS, finished bool) {
		t.Helper()
		names, _ := dir.List()
		j, err := Open(dir, small)
		if err != nil {
			if !errors.Is(err, ErrForeign) || finished {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		defer j.Close()
		if len(names) == 0 || len(names) == 1 && names[0] == directory.LockFile {
			return
		}
		if err := h.verify(j); err != nil {
			t.Errorf("%s: Open accepts an incomplete journal: %v; files %q", what, err, names)
		}
	}
	for _, kind := range []faulty.Kind{faulty.Create, faulty.Write, faulty.Sync, faulty.SyncDir, faulty.Rename, faulty.Remove, faulty.Read, faulty.Lock, faulty.List} {
		k := 1
		for ; ; k += faulty.Step() {
			dir := faulty.New()
			dir.FailCall(kind, k, syscall.EIO)
			err := restoreInto(dir, snapshotOf(t, source))
			if dir.Calls(kind) < k {
				break
			}
			if err != nil && !errors.Is(err, syscall.EIO) {
				t.Errorf("%v call %d failed: the restore returned %v", kind, k, err)
			}
			for _, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
				sound(kind.String(), dir.Crash(loss, nil), err == nil)
			}
		}
		if k == 1 {
			t.Errorf("the restore made no call of kind %v", kind)
		}
	}
	dir := faulty.New()
	cuts := 0
	dir.OnCall(func(c faulty.Call) error {
		if c.Kind == faulty.Read || c.Kind == faulty.Open {
			return nil
		}
		for _, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
			if cuts++; !faulty.LeftOut(cuts) {
				sound("power cut before "+c.String(), dir.Crash(loss, nil), false)
			}
		}
		return nil
	})
	if err := restoreInto(dir, snapshotOf(t, source)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d power cuts", cuts)
	sound("after the restore", dir.Crash(faulty.LoseAll, nil), true)
}

// Once the restored files are complete and committed (see disk.Stage), the next opening makes the
// directory a journal. If a call fails after the commit, the restore must still report success,
// because the caller of a failed restore removes the files.
func TestRestoreFailsAfterCommit(t *testing.T) {
	source, h := offline(t)
	for _, kind := range []faulty.Kind{faulty.Rename, faulty.Remove, faulty.SyncDir, faulty.List} {
		for k := 1; ; k++ {
			dir, calls, durable := faulty.New(), 0, false
			dir.OnCall(func(c faulty.Call) error {
				names, _ := dir.Crash(faulty.LoseAll, nil).List()
				if durable = durable || disk.Installing(names); durable && c.Kind == kind {
					if calls++; calls == k {
						return syscall.EIO
					}
				}
				return nil
			})
			if err := restoreInto(dir, snapshotOf(t, source)); err != nil {
				t.Errorf("%v call %d failed: the restore returned %v, want success", kind, k, err)
			}
			dir.OnCall(nil)
			if err := openAndVerify(dir.Crash(faulty.LoseNothing, nil), h); err != nil {
				t.Errorf("%v call %d failed: the restored journal: %v", kind, k, err)
			}
			if calls < k {
				break
			}
		}
	}
}

// If the disk is too small, the restore fails and leaves the directory empty.
func TestRestoreFullDisk(t *testing.T) {
	source, h := offline(t)
	for _, size := range []int64{0, 1000, 64 << 10, 100 << 10} {
		dir := faulty.New()
		dir.Capacity(size)
		if err := restoreInto(dir, snapshotOf(t, source)); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("restore on a disk of %d bytes: %v", size, err)
		}
		if names, _ := dir.List(); len(names) > 0 {
			t.Errorf("on a disk of %d bytes, the failed restore left %q behind", size, names)
		}
		dir.Capacity(-1)
		if err := restoreInto(dir, snapshotOf(t, source)); err != nil {
			t.Errorf("second restore, with enough space: %v", err)
		} else if err := openAndVerify(dir, h); err != nil {
			t.Error(err)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	source, _ := offline(t)
	if _, err := repair.NewRestore(source); !errors.Is(err, repair.ErrNotEmpty) || !strings.Contains(err.Error(), ".seg") {
		t.Errorf("restore into a directory that holds a journal: %v", err)
	}
	used := faulty.New()
	lock, err := used.Lock(directory.LockFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repair.NewRestore(used); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("restore into a directory in use: %v", err)
	}
	lock.Close()
	r, err := repair.NewRestore(used)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{segments.Name(1): "x", "evil": "x", directory.FormatFile: "weir journal 1\nsegment 65536\nsalt 00\n"} {
		if err := r.Add(name, strings.NewReader(content)); err == nil {
			t.Errorf("the restore accepted the unexpected file %s", name)
		}
	}
	s := snapshotOf(t, source)
	defer s.Close()
	if err := r.Add(directory.FormatFile, strings.NewReader(s.Format)); err != nil {
		t.Error(err)
	}
	if err := r.Add(segments.Name(1), bytes.NewReader(make([]byte, small.SegmentSize+1))); err == nil {
		t.Error("the restore accepted a segment that is too long")
	}
	if err := r.Abort(); err != nil {
		t.Error(err)
	}
}
