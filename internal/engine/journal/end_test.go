package journal

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/repair"
	"weir/internal/engine/journal/segments"
)

// A group (the records of one write) is written twice, at the same offset and with the same layout,
// and a crash cuts both attempts short. The remains of both attempts together look like a complete
// group, but recovery does not accept them as one.
func TestTwoTornAttempts(t *testing.T) {
	fs := faulty.New()
	w := newWorld(t, fs, newHistory())
	if err := errors.Join(w.create("a", "x"), w.append("a", 1, 100)); err != nil {
		t.Fatal(err)
	}
	end := w.j.write.synced
	w.j.Close()
	attempt := func(payload string) []byte {
		after := fs.Crash(faulty.LoseNothing, nil)
		j, err := Open(after, small)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		l := attach(t, j, "a")
		defer l.Close()
		var ops []op
		done := make(chan error, 8)
		for seq := weir.Seq(2); seq <= 9; seq++ {
			body := bytes.Repeat([]byte(payload), 1000)
			o := &appendOp{done: func(err error) { done <- err }}
			o.h, o.e, o.sum = l.(*handle), &engine.Entry{Payload: body, Header: engine.Header{Kind: engine.Batch, Seq: seq}}, segments.Sum(0, body)
			ops = append(ops, o)
		}
		j.queueTogether(ops...)
		for range ops {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		return after.Files()[segments.Name(1)]
	}
	first, second := attempt("1"), attempt("2")
	mixed := bytes.Clone(fs.Files()[segments.Name(1)])
	cut := end + segments.FrameSize + 4*int64(segments.Padded(segments.RecordSize+1000)) // an offset between two records
	copy(mixed[end:cut], first[end:cut])
	copy(mixed[cut:], second[cut:cut+16384])
	put(fs, segments.Name(1), mixed)
	j, err := Open(fs, small)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	l := attach(t, j, "a")
	defer l.Close()
	l.Headers(0, func(h engine.Header) bool {
		if h.Seq > 1 {
			t.Errorf("entry %d was recovered from the remains of two attempts", h.Seq)
		}
		return true
	})
}

// Two processes start on an empty directory. While the first waits for the lock, the second makes
// the directory a journal, uses it and stops. The first process then opens that journal instead of
// creating another.
func TestTwoFirstStarts(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	raced := false
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind != faulty.Lock || raced {
			return nil
		}
		raced = true
		w, err := openWorld(fs, h)
		if err == nil {
			err = errors.Join(w.create("a", "x"), w.appendMany("a", 1, 10, 100))
			w.j.Close()
		}
		return err
	})
	if err := openAndVerify(fs, h); err != nil || !raced {
		t.Fatal(err)
	}
}

// The format file, which holds the salt of the journal, is lost. A check reports the loss, and
// finds a copy of the salt in the file "end" or in the header of a segment. A repair writes the
// format file again, and no data is lost.
func TestLostFormat(t *testing.T) {
	fs := threeFiles(t)
	want := fs.Files()[directory.FormatFile]
	want = want[len("weir journal 5") : len(want)-len("check 01234567\n")] // the version becomes 3, because no segment is compressed yet
	for name, spoil := range map[string]func(*faulty.FS){
		"removed":                    func(fs *faulty.FS) { fs.Remove(directory.FormatFile) },
		"empty":                      func(fs *faulty.FS) { put(fs, directory.FormatFile, nil) },
		"one bit is flipped":         func(fs *faulty.FS) { fs.Flip(directory.FormatFile, 40, 2) },
		"format and end are removed": func(fs *faulty.FS) { fs.Remove(directory.FormatFile); fs.Remove(directory.EndFile) },
		"format and end are empty":   func(fs *faulty.FS) { put(fs, directory.FormatFile, nil); put(fs, directory.EndFile, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			after := fs.Crash(faulty.LoseNothing, nil)
			spoil(after)
			if _, err := Open(after, small); !errors.Is(err, engine.ErrDamaged) && !errors.Is(err, ErrForeign) {
				t.Errorf("open without a format file: %v", err)
			}
			r, err := repair.Run(after, repair.Options{})
			if err != nil || r.Before.MayBeLost > 0 || len(r.Before.Damages) == 0 || len(r.After.Damages) > 0 {
				t.Fatalf("report %+v, error %v", r, err)
			}
			if got := after.Files()[directory.FormatFile]; !bytes.Contains(got, want) {
				t.Errorf("format %q, want %q", got, want)
			}
			j, err := Open(after, small)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			if d, err := j.Get(background, "b"); err != nil || string(d.Value) != "revoked" {
				t.Errorf("document b: %q, %v", d.Value, err)
			}
		})
	}
}

// A check does not report an error of the file system as damage, because another attempt may
// succeed.
func TestCheckWithoutPermission(t *testing.T) {
	for _, name := range []string{directory.FormatFile, directory.EndFile} {
		fs := threeFiles(t)
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.Open && c.Name == name {
				return syscall.EACCES
			}
			return nil
		})
		if r, err := repair.Check(fs, repair.CheckOptions{}); !errors.Is(err, syscall.EACCES) {
			t.Errorf("%s: report %+v, error %v", name, r, err)
		}
	}
}

// A journal was closed, so both slots of the file "end" say where it ended. One slot and the whole
// newest segment are lost. Open refuses the journal. It does not assume that the journal ended
// before that segment.
func TestBothSlotsProveTheEnd(t *testing.T) {
	fs := threeFiles(t)
	for _, off := range []int64{0, endBlockLen} {
		after := fs.Crash(faulty.LoseNothing, nil)
		end, newest := after.Files()[directory.EndFile], after.Files()[segments.Name(3)]
		clear(end[off : off+endBlockLen])
		clear(newest[headerLen:])
		put(after, directory.EndFile, end)
		put(after, segments.Name(3), newest)
		if _, err := Open(after, small); !errors.Is(err, engine.ErrDamaged) {
			t.Errorf("slot at %d lost: %v", off, err)
		}
	}
}
