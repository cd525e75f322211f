package journal

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// counting is an engine.Judge, which the journal asks whether to store an entry. It counts admitted
// and committed entries.
type counting struct {
	fixed
	admitted, committed atomic.Int64
}

func (c *counting) Admit(*engine.Entry) bool { c.admitted.Add(1); return true }
func (c *counting) Commit(n int)             { c.committed.Add(int64(n)) }

func batchOf(seq weir.Seq, payload string) *engine.Entry {
	return &engine.Entry{Header: engine.Header{Kind: engine.Batch, Seq: seq}, Payload: []byte(payload)}
}

// openOne opens a journal with one document, and opens the log that the document owns.
func openOne(t *testing.T, fs *faulty.FS, judge engine.Judge) (*Journal, engine.Document, engine.Log) {
	t.Helper()
	j, err := Open(fs, small)
	if err != nil {
		t.Fatal(err)
	}
	d, err := j.Create(background, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := j.Open(background, d.Created, judge)
	if err != nil {
		t.Fatal(err)
	}
	return j, d, l
}

// TestCloseLogWhileJournalCloses closes a log while the closing journal waits for the sync of an
// append to that log. The judge gets no calls after its log is closed.
func TestCloseLogWhileJournalCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, judge := faulty.New(), &counting{}
		j, _, l := openOne(t, fs, judge)
		release := holdSyncs(fs)
		go l.Append(background, batchOf(1, "x"))
		synctest.Wait()
		go j.Close()
		synctest.Wait()
		go func() { time.Sleep(time.Second); release() }()
		l.Close()
		if judge.admitted.Load() != 1 || judge.committed.Load() != 1 {
			t.Errorf("log closed after %d of %d entries were committed", judge.committed.Load(), judge.admitted.Load())
		}
		j.Close()
	})
}

// TestAppendThroughClosedHandle queues an append, then closes and reopens its log before the
// committer takes the append. The append came through the old handle, so the new judge is not asked
// about it.
func TestAppendThroughClosedHandle(t *testing.T) {
	j, d, l := openOne(t, faulty.New(), &counting{})
	defer j.Close()
	outcome := make(chan error, 1)
	late := &appendOp{h: l.(*handle), e: batchOf(1, "x"), done: func(err error) { outcome <- err }}
	l.Close()
	next := &counting{}
	if _, err := j.Open(background, d.Created, next); err != nil {
		t.Fatal(err)
	}
	j.do(late)
	if err := <-outcome; !errors.Is(err, engine.ErrClosed) || next.admitted.Load() != 0 {
		t.Errorf("append returned %v, want %v; the new judge was asked %d times, want 0", err, engine.ErrClosed, next.admitted.Load())
	}
}

// TestScanWhileJournalCloses closes the journal during a scan. The scan returns ErrClosed.
func TestScanWhileJournalCloses(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	if err := w.create("a", "x"); err != nil {
		t.Fatal(err)
	}
	if err := w.appendMany("a", 1, 3*runItems, 10); err != nil {
		t.Fatal(err)
	}
	err := w.logs["a"].Scan(background, 0, 0, func(*engine.Entry) bool { w.j.Close(); return true })
	if !errors.Is(err, engine.ErrClosed) {
		t.Errorf("scan of a closed journal: %v", err)
	}
}

// TestLongNote trims a log and asks the trim to store a note that does not fit in a segment. The
// trim returns an error.
func TestLongNote(t *testing.T) {
	j, _, l := openOne(t, faulty.New(), &fixed{})
	defer j.Close()
	note := []byte(strings.Repeat("x", int(small.SegmentSize)))
	before := j.Stats().Segments
	failed := make(chan error, 1)
	go func() { failed <- l.Trim(background, 1, note) }()
	select {
	case err := <-failed:
		if err == nil {
			t.Error("a note larger than a segment was accepted")
		}
	case <-time.After(time.Minute):
		t.Errorf("the trim did not return; the journal has %d segments, before the trim %d", j.Stats().Segments, before)
	}
}

// TestOnlyFourFlagsAreKept appends an entry with all eight flag bits set. Only the low four are
// stored.
func TestOnlyFourFlagsAreKept(t *testing.T) {
	j, _, l := openOne(t, faulty.New(), &fixed{})
	defer j.Close()
	e := batchOf(1, "x")
	e.Flags = 0xff
	if err := l.Append(background, e); err != nil {
		t.Fatal(err)
	}
	got, err := l.Header(background, 1)
	if err != nil || got.Flags != index.FlagMask {
		t.Errorf("flags %x, want %x: %v", got.Flags, index.FlagMask, err)
	}
}

// TestRecycleWithoutSpace makes the write of the header fail when a segment is recycled, as a
// copy-on-write file system may do on a full disk. The file is removed. If it stayed, it would take
// space that the journal does not account for.
func TestRecycleWithoutSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		w := newWorld(t, fs, h)
		defer w.j.Close()
		refused := 0
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.Write && c.Off == 0 && c.Len == segments.DataStart && c.Name != temporary && refused < 3 {
				refused++
				return syscall.ENOSPC
			}
			return nil
		})
		if err := w.create("a", "x"); err != nil {
			t.Fatal(err)
		}
		for seq := 1; seq < 2000; seq++ {
			err := w.append("a", weir.Seq(seq), 700)
			for ; errors.Is(err, engine.ErrFull); err = w.append("a", weir.Seq(seq), 700) {
				time.Sleep(retry)
			}
			if err != nil {
				t.Fatal(err)
			}
			if seq%50 == 0 {
				if err := w.trim("a", weir.Seq(seq), ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Minute)
		if refused < 3 {
			t.Errorf("only %d header writes failed, want at least 3", refused)
		}
		if got, want := fs.Size(), w.j.Stats().Disk+endLen+1024; got > want {
			t.Errorf("%d bytes on disk, want at most %d", got, want)
		}
	})
}

// holdSyncs makes every sync wait until the returned function is called.
func holdSyncs(fs *faulty.FS) (release func()) {
	hold := make(chan struct{})
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind == faulty.Sync {
			<-hold
		}
		return nil
	})
	return func() { close(hold) }
}

// TestIdleLogNeedsNoSync opens and closes a log while the journal waits for the sync of another
// log. Neither call waits for that sync.
func TestIdleLogNeedsNoSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		j, _, busy := openOne(t, fs, &fixed{})
		d, err := j.Create(background, "b", nil)
		if err != nil {
			t.Fatal(err)
		}
		release := holdSyncs(fs)
		go busy.Append(background, batchOf(1, "x"))
		synctest.Wait()
		opened := make(chan error, 1)
		go func() {
			l, err := j.Open(background, d.Created, &fixed{})
			if err == nil {
				err = l.Close()
			}
			opened <- err
		}()
		synctest.Wait()
		select {
		case err := <-opened:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("opening and closing an idle log waits for the sync of another log")
		}
		release()
		j.Close()
	})
}

// TestCloseLogDuringDeletion closes a log while the deletion of its document waits for a sync.
// Close returns only after Dropped was called, because the judge of a closed log gets no calls.
func TestCloseLogDuringDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, judge := faulty.New(), &told{}
		j, _, l := openOne(t, fs, judge)
		release := holdSyncs(fs)
		go j.Delete(background, "a", 0)
		synctest.Wait()
		closed := make(chan bool, 1)
		go func() { l.Close(); closed <- judge.dropped.Load() }()
		synctest.Wait()
		release()
		if !<-closed {
			t.Error("the log was closed before its judge was told of the deletion")
		}
		j.Close()
	})
}

// told is a judge that records whether Dropped was called.
type told struct {
	fixed
	dropped atomic.Bool
}

func (d *told) Dropped() { d.dropped.Store(true) }

// closing is a file system that counts how often each file that it opened was closed.
type closing struct {
	disk.FS
	files []*closingFile
}

type closingFile struct {
	disk.File
	name   string
	closed int
}

func (c *closing) Open(name string) (disk.File, error) {
	f, err := c.FS.Open(name)
	if err != nil {
		return nil, err
	}
	c.files = append(c.files, &closingFile{File: f, name: name})
	return c.files[len(c.files)-1], nil
}

func (f *closingFile) Close() error {
	f.closed++
	return f.File.Close()
}

// An opening that fails late closes every file once, also that of a dead segment whose header is
// damaged.
func TestFailedOpeningClosesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, _, _, _, _ := packedJournal(t, time.Sleep)
		dead := uint64(1)
		for ; fs.Files()[segments.Name(dead)] != nil; dead++ {
		}
		put(fs, segments.Name(dead), []byte("damaged"))
		broken := errors.New("broken")
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.SyncDir {
				return broken
			}
			return nil
		})
		c := &closing{FS: fs}
		if _, err := Open(c, small); !errors.Is(err, broken) {
			t.Fatalf("open: %v, want the error of the disk", err)
		}
		if !slices.ContainsFunc(c.files, func(f *closingFile) bool { return f.name == segments.Name(dead) }) {
			t.Error("the dead segment was not opened")
		}
		for _, f := range c.files {
			if f.closed != 1 {
				t.Errorf("%s was closed %d times", f.name, f.closed)
			}
		}
	})
}

// An error that makes a journal unusable for a snapshot is reported once.
func TestSnapshotReportsOnce(t *testing.T) {
	fs := faulty.New()
	put(fs, directory.FormatFile, []byte("weir journal 3\nrubbish\n"))
	if _, err := OpenSnapshot(fs); !errors.Is(err, engine.ErrDamaged) || strings.Count(err.Error(), "checksum") != 1 {
		t.Errorf("the error is %v", err)
	}
}
