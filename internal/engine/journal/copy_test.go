package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/disk/faulty"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/segments"
)

// A damaged journal can be backed up, and the damage is reported.
func TestSnapshotReportsDamage(t *testing.T) {
	fs, w, s := held(t)
	s.Close()
	defer w.j.Close()
	first := w.j.store.allSegments()[0]
	fs.Flip(first.Name, segments.DataStart+2000, 4)
	s, err := w.j.Snapshot(background)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range s.Files() {
		if err := s.Copy(io.Discard, i); err != nil {
			t.Fatal(err)
		}
	}
	var damage *DamageError
	if d := s.Damages(); len(d) != 1 || !errors.As(d[0], &damage) || damage.File != first.Name {
		t.Errorf("the snapshot reported the damages %v, want one, in the file with the flipped bit", d)
	}
}

// Data that the disk cannot read is replaced with zeros in the copy and reported. Everything else
// is in the backup.
func TestSnapshotUnreadable(t *testing.T) {
	fs, _ := stories(t)
	j, err := Open(fs, small)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	take := func() *Snapshot {
		s, err := j.Snapshot(background)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	// The unreadable sector contains the header, batches or the footer.
	for _, from := range []int64{0, 8192, small.SegmentSize - 4096} {
		before, s := take(), take()
		for before.Files()[1].Name != s.Files()[1].Name { // try again, because a segment was freed in between
			before.Close()
			before, s = s, take()
		}
		bad := s.Files()[1].Name
		var want bytes.Buffer
		if err := before.Copy(&want, 1); err != nil {
			t.Fatal(err)
		}
		before.Close()
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.Read && c.Name == bad && c.Off < from+4096 && c.Off+int64(c.Len) > from {
				return syscall.EIO
			}
			return nil
		})
		var got bytes.Buffer
		err = s.Copy(&got, 1)
		fs.OnCall(nil)
		s.Close()
		if err != nil || len(s.Damages()) == 0 || !strings.Contains(fmt.Sprint(s.Damages()), "input/output error") || got.Len() != want.Len() {
			t.Fatalf("unreadable at %d of %s: error %v, damages %q, copied %d bytes, want %d", from, bad, err, s.Damages(), got.Len(), want.Len())
		}
		clear(want.Bytes()[from:min(from+4096, int64(want.Len()))])
		// If the footer is unreadable, the copy also contains the unused space of the segment. Then
		// only the length can be compared.
		if from < small.SegmentSize-4096 && !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("at %d of %s: the copy differs outside the unreadable sector", from, bad)
		}
	}
}

// backedUp takes a backup of a directory that cannot be opened, restores it and repairs the copy.
func backedUp(t *testing.T, what string, dir *faulty.FS, h *history) {
	t.Helper()
	s, err := OpenSnapshot(dir)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	copied, err := restoreSnapshot(s)
	if err != nil && !strings.Contains(err.Error(), "the restored journal is damaged") {
		t.Fatalf("%s: %v", what, err)
	}
	if len(s.Damages()) == 0 {
		t.Errorf("%s: no damage reported", what)
	}
	repairAndVerify(t, what, copied, h, false)
	if lock, err := dir.Lock(directory.LockFile); err != nil {
		t.Errorf("%s: the directory is still locked after the backup: %v", what, err)
	} else {
		lock.Close()
	}
}

// A journal that is too damaged to be opened can be backed up, and the restored copy can be
// repaired.
func TestSnapshotOfUnopenableJournal(t *testing.T) {
	fs, h := stories(t)
	names := segmentFiles(fs)
	refused := 0
	for _, name := range names {
		// The damage is in the header, in the footer or in a group.
		for _, off := range []int64{10, small.SegmentSize - 20, segments.DataStart + 3} {
			dir := fs.Crash(faulty.LoseNothing, nil)
			dir.Flip(name, off, 2)
			if j, err := Open(dir.Crash(faulty.LoseNothing, nil), small); err == nil {
				j.Close() // Open succeeds: the damage is in a ready segment, which holds no data
				continue
			}
			refused++
			backedUp(t, fmt.Sprintf("%s damaged at %d", name, off), dir, h)
		}
	}
	if refused < 2 {
		t.Errorf("Open refused only %d of the damaged journals", refused)
	}
	reported := 0
	for _, name := range names {
		missing := fs.Crash(faulty.LoseNothing, nil)
		if err := errors.Join(missing.Remove(name), missing.SyncDir()); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSnapshot(missing)
		if err != nil {
			t.Fatalf("backup after %s was removed: %v", name, err)
		}
		if strings.Contains(fmt.Sprint(s.Damages()), name+": missing") {
			reported++
		}
		s.Close()
	}
	if reported == 0 {
		t.Error("the backups reported no missing file")
	}
}

// copyOne opens a journal, copies one file of a snapshot and returns the copy and the reported
// damages. The function spoil is called before the copy begins.
func copyOne(t *testing.T, fs *faulty.FS, file string, spoil func()) (content []byte, damages []error) {
	t.Helper()
	s := snapshotOf(t, fs)
	defer s.Close()
	files := s.Files()
	spoil()
	defer fs.OnCall(nil)
	var b bytes.Buffer
	for i, f := range files {
		if f.Name == file {
			if err := s.Copy(&b, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.Bytes(), s.Damages()
}

// firstFile returns the name of the oldest segment in a snapshot.
func firstFile(t *testing.T, fs *faulty.FS) string {
	s := snapshotOf(t, fs)
	defer s.Close()
	return s.Files()[1].Name
}

// A read that fails is reported even if the next attempt succeeds: the copy is complete, but a part
// of it was not checked, and the disk may be about to fail. Each read of a segment fails once.
func TestFailureThatGoesAwayIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain, _ := stories(t)
		packed, _, _, _, packedFile := packedJournal(t, time.Sleep)
		for _, of := range []struct {
			fs   *faulty.FS
			file string
		}{{plain, firstFile(t, plain)}, {packed, packedFile}} {
			want, _ := copyOne(t, of.fs, of.file, func() {})
			k := 1
			for ; ; k += faulty.Step() {
				fs, reads := of.fs.Crash(faulty.LoseNothing, nil), 0
				got, damages := copyOne(t, fs, of.file, func() {
					fs.OnCall(func(c faulty.Call) error {
						if c.Kind == faulty.Read && c.Name == of.file {
							if reads++; reads == k {
								return syscall.EIO
							}
						}
						return nil
					})
				})
				if reads < k {
					break
				}
				if len(damages) != 1 || !errors.Is(damages[0], syscall.EIO) {
					t.Errorf("read %d of %s failed once: damages %v, want one", k, of.file, damages)
				}
				if len(got) != len(want) {
					t.Errorf("read %d of %s failed once: copied %d bytes, want %d", k, of.file, len(got), len(want))
				}
			}
			if k < 4 {
				t.Errorf("the copy of %s took only %d reads", of.file, k-1)
			}
		}
	})
}

// Each damaged part of a segment is reported once, whether the segment is compressed or not.
func TestDamageIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain, _ := stories(t)
		packed, _, _, _, packedFile := packedJournal(t, time.Sleep)
		for _, of := range []struct {
			fs    *faulty.FS
			file  string
			parts []int64 // offsets in the header, in groups and at the end
		}{
			{plain, firstFile(t, plain), []int64{10, segments.DataStart + 3, segments.DataStart + 2000, 9000, small.SegmentSize - footerLen - 30, small.SegmentSize - 20}},
			{packed, packedFile, []int64{10, segments.DataStart + 3, segments.DataStart + 100, int64(len(packed.Files()[packedFile])) - 40, int64(len(packed.Files()[packedFile])) - 20}},
		} {
			for _, off := range of.parts {
				fs := of.fs.Crash(faulty.LoseNothing, nil)
				_, flipped := copyOne(t, fs, of.file, func() { fs.Flip(of.file, off, 2) })
				_, bad := copyOne(t, of.fs.Crash(faulty.LoseNothing, nil), of.file, func() {})
				if len(bad) > 0 {
					t.Fatalf("damages of an undamaged journal: %v", bad)
				}
				fs = of.fs.Crash(faulty.LoseNothing, nil)
				_, bad = copyOne(t, fs, of.file, func() { fs.OnCall(unreadable(of.file, off&^4095, off&^4095+4096)) })
				if len(flipped) != 1 || len(bad) != 1 {
					t.Errorf("%s at %d: a flipped bit is reported as %v, an unreadable sector as %v; want one damage each", of.file, off, flipped, bad)
				}
			}
		}
	})
}

// The headers of the segments cannot be read. The journal can be backed up all the same.
func TestSnapshotWithUnreadableHeaders(t *testing.T) {
	fs, _ := stories(t)
	names := segmentFiles(fs)
	want := fs.Files()
	fs.OnCall(func(c faulty.Call) error {
		if _, segment := segments.NumberOf(c.Name); segment && c.Kind == faulty.Read && c.Off < segments.DataStart {
			return syscall.EIO
		}
		return nil
	})
	for _, name := range names {
		s := snapshotOf(t, fs)
		for i, f := range s.Files() {
			var b bytes.Buffer
			if err := s.Copy(&b, i); err != nil {
				t.Fatal(err)
			}
			if f.Name == name && !bytes.Equal(b.Bytes()[segments.DataStart:], want[name][segments.DataStart:]) {
				t.Errorf("%s differs after its header", name)
			}
		}
		if !strings.Contains(fmt.Sprint(s.Damages()), name) {
			t.Errorf("the damages %v do not name %s", s.Damages(), name)
		}
		s.Close()
	}
}
