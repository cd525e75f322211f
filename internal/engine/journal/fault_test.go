package journal

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir"
	"weir/internal/disk"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/segments"
)

// TestEveryCallFails makes the k-th call of each kind fail, for every k. A journal whose write or
// sync failed accepts no more writes. After a power cut, the journal opens, and everything that was
// acknowledged is present.
func TestEveryCallFails(t *testing.T) {
	for _, kind := range []faulty.Kind{faulty.Create, faulty.Write, faulty.Sync, faulty.SyncDir, faulty.Rename, faulty.Remove, faulty.Read} {
		points := 0
		for k := 1; failOne(t, kind, k); k += faulty.Step() {
			points++
			if t.Failed() {
				return
			}
		}
		t.Logf("%v: failed at %d points", kind, points)
	}
}

// failOne runs the script with one failing call. It returns false if the script makes fewer calls
// of that kind.
func failOne(t *testing.T, kind faulty.Kind, k int) (fired bool) {
	fs, h := faulty.New(), newHistory()
	fs.FailCall(kind, k, syscall.EIO)
	w, err := openWorld(fs, h)
	if err == nil {
		err = script(w)
		if !allowed(err) && !errors.Is(err, syscall.EIO) {
			t.Errorf("%v call %d failed: the script returned %v", kind, k, err)
		}
		if status := w.j.Status(); errors.Is(err, engine.ErrReadOnly) {
			if status.State != engine.ReadOnly || status.Reason == nil {
				t.Errorf("%v call %d failed with %v: status %v, want read-only", kind, k, err, status)
			}
			if err := w.create("late", "x"); !errors.Is(err, engine.ErrReadOnly) {
				t.Errorf("%v call %d failed: a later create returned %v, want %v", kind, k, err, engine.ErrReadOnly)
			}
		}
		w.j.Close()
	}
	fired = fs.Calls(kind) >= k
	for _, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
		after := fs.Crash(loss, nil)
		j, err := Open(after, small)
		if err != nil {
			t.Errorf("%v call %d failed, then %v: open: %v", kind, k, loss, err)
			continue
		}
		if err := h.verify(j); err != nil {
			t.Errorf("%v call %d failed, then %v: %v", kind, k, loss, err)
		}
		j.Close()
	}
	return fired
}

// TestBitFlips flips bits all over a journal. Each flip is reported or has no effect: no reader
// gets a wrong byte, and no acknowledged entry disappears silently.
func TestBitFlips(t *testing.T) {
	fs, h := offline(t)
	files := fs.Files()
	delete(files, directory.LockFile)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	rng := rand.New(rand.NewPCG(3, 5))
	reported, harmless := 0, 0
	for n := range faulty.Cases(4000) {
		name := names[n%len(names)]
		content := files[name]
		off := rng.Int64N(int64(len(content)))
		if used := len(strings.TrimRight(string(content), "\x00")); n%4 > 0 && used > 0 { // mostly in the used part of the file
			off = rng.Int64N(int64(used))
		}
		after := fs.Crash(faulty.LoseNothing, nil)
		after.Flip(name, off, uint(rng.IntN(8)))
		switch err := openAndVerify(after, h); {
		case err == nil:
			harmless++
		case errors.Is(err, engine.ErrDamaged), errors.Is(err, ErrForeign) && name == directory.FormatFile, errors.Is(err, ErrNewer) && name == directory.FormatFile:
			reported++
		default:
			t.Fatalf("bit flipped at %d of %s: %v", off, name, err)
		}
	}
	t.Logf("%d reported, %d without effect", reported, harmless)
	if reported < faulty.Cases(1000) {
		t.Errorf("only %d flips were reported", reported)
	}
}

func openAndVerify(fs *faulty.FS, h *history) error {
	j, err := Open(fs, small)
	if err != nil {
		return err
	}
	defer j.Close()
	return h.verify(j)
}

// TestNewestRecordDamaged damages the last record of a journal that was not closed. An idle journal
// writes its watermark (the offset up to which everything was synced). From then on, such damage is
// not mistaken for a write that a crash cut short.
func TestNewestRecordDamaged(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	defer w.j.Close()
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	if err := w.appendMany("a", 1, 5, 100); err != nil {
		t.Fatal(err)
	}
	end := w.j.write.synced
	for marked := int64(0); marked != end; { // wait for the watermark of the last group; there may be an earlier one
		after := fs.Crash(faulty.LoseNothing, nil)
		f, err := after.Open(segments.Name(1))
		if err != nil {
			t.Fatal(err)
		}
		var mark [watermarkLen]byte
		if _, err := f.ReadAt(mark[:], watermarkAt); err != nil {
			t.Fatal(err)
		}
		f.Close()
		marked = int64(binary.LittleEndian.Uint32(mark[4:]))
	}
	for off := end - 100; off < end-8; off++ {
		after := fs.Crash(faulty.LoseNothing, nil)
		after.Flip(segments.Name(1), off, 3)
		if err := openAndVerify(after, h); !errors.Is(err, engine.ErrDamaged) {
			t.Fatalf("bit flipped at %d, %d bytes before the end of the groups: %v", off, end-off, err)
		}
	}
}

// TestLostSegment removes a whole segment file. The journal is then refused as damaged.
func TestLostSegment(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w, err := openWorld(fs, h)
	if err == nil {
		err = script(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.j.Close()
	numbers := w.j.store.allSegments() // the journal is closed, so no segment is freed any more
	for _, s := range numbers[:len(numbers)-1] {
		after := fs.Crash(faulty.LoseNothing, nil)
		if err := after.Remove(s.Name); err != nil {
			t.Fatal(err)
		}
		var damage *DamageError
		if _, err := Open(after, small); !errors.As(err, &damage) || damage.File != s.Name {
			t.Errorf("open without segment %s: %v", s.Name, err)
		}
	}
}

// TestFullDisk fills the disk. Appends are refused, and reads and deletions still work. Appends are
// accepted again as soon as there is space, without a restart.
func TestFullDisk(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	fs.Capacity(5 * small.SegmentSize)
	w := newWorld(t, fs, h)
	for _, key := range []string{"a", "b"} {
		if err := w.create(key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	seq, err := weir.Seq(1), error(nil)
	for ; err == nil; seq++ {
		err = w.append("a", seq, 4000)
	}
	if !errors.Is(err, engine.ErrFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("append on a full disk: %v", err)
	}
	if s := w.j.Status(); s.State != engine.Full || s.Reason == nil {
		t.Errorf("status %v, want full with a reason", s)
	}
	if err := w.create("c", strings.Repeat("x", 4000)); !errors.Is(err, engine.ErrFull) {
		t.Errorf("create on a full disk: %v", err)
	}
	if _, err := w.logs["a"].Read(background, 1); err != nil {
		t.Errorf("read on a full disk: %v", err)
	}
	if err := w.update("b", "revoked"); err != nil {
		t.Errorf("update on a full disk: %v", err)
	}
	if err := w.trim("a", seq-3, "most is gone"); err != nil {
		t.Errorf("trim on a full disk: %v", err)
	}
	// The trim left segments without needed records. They are recycled, which takes no additional
	// space.
	for i := weir.Seq(0); i < 20; {
		switch err := w.append("a", seq+i, 4000); {
		case err == nil:
			i++
		case !errors.Is(err, engine.ErrFull):
			t.Fatal(err)
		}
	}
	if s := w.j.Status(); s.State != engine.Ready {
		t.Errorf("status %v after space was freed", s)
	}
	if err := w.remove("b"); err != nil {
		t.Error(err)
	}
	w.j.Close()
	for _, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
		if err := openAndVerify(fs.Crash(loss, nil), h); err != nil {
			t.Error(loss, err)
		}
	}
}

// TestRefusedDirectories opens directories that must be refused. Each is refused with its own
// error, and its content is not changed.
func TestRefusedDirectories(t *testing.T) {
	good := faulty.New()
	w, err := openWorld(good, newHistory())
	if err == nil {
		err = script(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.j.Close()
	for _, c := range []struct {
		name string
		make func() *faulty.FS
		want error
		says string
	}{
		{"foreign", func() *faulty.FS { fs := faulty.New(); put(fs, "photo.jpg", []byte("x")); return fs }, ErrForeign, "photo.jpg"},
		{"foreign format", func() *faulty.FS {
			fs := faulty.New()
			put(fs, directory.FormatFile, []byte("something else\n"))
			return fs
		}, ErrForeign, "something else"},
		{"newer", func() *faulty.FS {
			fs := good.Crash(faulty.LoseNothing, nil)
			put(fs, directory.FormatFile, []byte("weir journal 6\nwhatever\n"))
			return fs
		}, ErrNewer, "format 6"},
		{"locked", func() *faulty.FS {
			fs := good.Crash(faulty.LoseNothing, nil)
			if _, err := fs.Lock(directory.LockFile); err != nil {
				t.Fatal(err)
			}
			return fs
		}, disk.ErrLocked, "in use"},
		{"unwritable", func() *faulty.FS {
			fs := good.Crash(faulty.LoseNothing, nil)
			fs.OnCall(func(c faulty.Call) error {
				if c.Kind != faulty.Read && c.Kind != faulty.List {
					return syscall.EACCES
				}
				return nil
			})
			return fs
		}, syscall.EACCES, "permission denied"},
		{"damaged", func() *faulty.FS {
			fs := good.Crash(faulty.LoseNothing, nil)
			fs.Flip(w.j.store.allSegments()[0].Name, 8, 0)
			return fs
		}, engine.ErrDamaged, "segment header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := c.make()
			before := fs.Files()
			_, err := Open(fs, small)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Open returned %v, want %v with %q", err, c.want, c.says)
			}
			if !reflect.DeepEqual(before, fs.Files()) {
				t.Error("the directory was changed")
			}
		})
	}
}

// TestOlderRecordDamaged crashes a journal before it is idle, and then damages a group (the records
// of one write) that is followed by other groups. The journal is refused as damaged.
func TestOlderRecordDamaged(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	defer w.j.Close()
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	for seq := weir.Seq(1); seq <= 20; seq++ {
		if err := w.append("a", seq, 100); err != nil {
			t.Fatal(err)
		}
	}
	crashed := fs.Crash(faulty.LoseAll, nil)
	for _, it := range []weir.Seq{1, 7, 19} {
		place, _ := w.logs["a"].(*handle).index.Find(it)
		after := crashed.Crash(faulty.LoseNothing, nil)
		after.Flip(segments.Name(1), int64(place.Place.Off)+60, 1)
		if err := openAndVerify(after, h); !errors.Is(err, engine.ErrDamaged) {
			t.Errorf("entry %d of 20 damaged: %v", it, err)
		}
	}
}
