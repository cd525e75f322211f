package journal

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/blocks"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/repair"
	"weir/internal/engine/journal/segments"
)

// packedJournal returns the disk of a closed journal that has compressed segments, and the journal's
// history. It also returns an entry in the first block of a compressed segment: the key of the
// document, the sequence, and the file.
func packedJournal(t *testing.T, pass clock) (fs *faulty.FS, h *history, key string, seq weir.Seq, file string) {
	t.Helper()
	for range 20 {
		fs, h = faulty.New(), newHistory()
		w := newWorld(t, fs, h)
		err := mixture(w, 0, 20, func() { pass(calm * 3 / 5) })
		w.j.Close()
		j := newJournal(fs, small) // without a reclaimer, which might free the segment
		if err := errors.Join(err, j.recover()); err != nil {
			t.Fatal(err)
		}
		for id, l := range j.store.logs.All() {
			if l == nil {
				continue
			}
			l.index.Ascend(0, func(it index.Item) bool {
				if s := j.store.segment(it.Place.Segment); s.Packed() != nil && it.Place.Off < blocks.Size {
					seq, file = it.Seq, s.Name
					j.store.docs.Scan(func(k string, d *index.Document) bool {
						if d.Created == id {
							key = k
						}
						return key == ""
					})
				}
				return file == ""
			})
		}
		j.closeAll()
		if file != "" {
			return fs, h, key, seq, file
		}
	}
	t.Fatal("no segment is compressed")
	return nil, nil, "", 0, ""
}

// A snapshot of a journal with compressed segments holds them as they are, and the restored journal
// has the same content.
func TestPackedSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h, _, _, file := packedJournal(t, time.Sleep)
		restored, err := restoreSnapshot(snapshotOf(t, fs))
		if err != nil {
			t.Fatal(err)
		}
		if want, got := fs.Files()[file], restored.Files()[file]; string(want) != string(got) || len(got)%segments.DataStart == 0 {
			t.Errorf("the compressed file has %d bytes, and %d after the restore", len(want), len(got))
		}
		if err := verifyAndCheck(restored, h); err != nil {
			t.Error(err)
		}
	})
}

// Damage to a compressed block is reported with the documents and sequences that it hits: by a
// snapshot, by a scrub, by a check, and to readers. A repair gives up these sequences only.
func TestPackedDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h, key, seq, file := packedJournal(t, time.Sleep)
		fs.Flip(file, segments.DataStart+100, 3) // in the first block, which has the records
		s := snapshotOf(t, fs)
		for i, f := range s.Files() {
			var b bytes.Buffer
			if err := s.Copy(&b, i); err != nil || f.Name == file && !bytes.Equal(b.Bytes(), fs.Files()[file]) {
				t.Errorf("copy %s: %d bytes, error %v", f.Name, b.Len(), err)
			}
		}
		if len(s.Damages()) == 0 {
			t.Error("the snapshot reports no damage")
		}
		s.Close()
		o := small
		o.ScrubRate = 1 << 30
		j, err := Open(fs, o)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		found := slices.ContainsFunc(j.Stats().Scrub.Findings, func(f Finding) bool {
			return f.File == file && f.Document == key && f.From <= seq && f.Records > 0 && strings.Contains(f.Why, "block")
		})
		d, err := j.Get(background, key)
		if err != nil {
			t.Fatal(err)
		}
		l, err := j.Open(background, d.Created, &fixed{})
		if err == nil { // otherwise the block also holds something that the log needs to be opened
			_, err = l.Read(background, seq)
			l.Close()
		}
		if !errors.Is(err, engine.ErrDamaged) || !found {
			t.Errorf("entry %d of %s: error %v; findings %+v", seq, key, err, j.Stats().Scrub.Findings)
		}
		j.Close()
		r, err := repair.Run(fs, repair.Options{})
		if err != nil || r.Lossless() || r.Before.MayBeLost > 0 || len(r.After.Damages) > 0 {
			t.Fatalf("repair: %+v, error %v", r, err)
		}
		if !slices.ContainsFunc(r.Losses, func(l repair.Loss) bool { return l.Document == key && l.From <= seq && seq <= l.To }) {
			t.Errorf("the losses %+v do not include entry %d of %s", r.Losses, seq, key)
		}
		if err := (&victim{fs: fs, h: h}).excused(fs, r); err != nil {
			t.Error(err)
		}
	})
}

// A journal gets format 5 when it may get compressed segments, and keeps it. Without the setting it
// keeps format 3, which older versions can open. A journal of format 4, which has blocks of another
// kind, gets format 5 too.
func TestPackedFormat(t *testing.T) {
	fs := faulty.New()
	for _, step := range []struct {
		compress bool
		want     string
	}{{false, "weir journal 3\n"}, {true, "weir journal 5\n"}, {false, "weir journal 5\n"}} {
		o := small
		o.Compress = step.compress
		j, err := Open(fs, o)
		if err != nil {
			t.Fatal(err)
		}
		j.Close()
		if text := string(fs.Files()[directory.FormatFile]); !strings.HasPrefix(text, step.want) {
			t.Errorf("compression %v: format %q, want %q", step.compress, text, step.want)
		}
	}
	d := directory.Directory{FS: fs}
	if err := d.ReadFormat(); err != nil {
		t.Fatal(err)
	}
	d.Version = 4
	put(fs, directory.FormatFile, []byte(d.FormatText()))
	j, err := Open(fs, small)
	if err != nil {
		t.Fatal(err)
	}
	j.Close()
	if text := string(fs.Files()[directory.FormatFile]); !strings.HasPrefix(text, "weir journal 5\n") {
		t.Errorf("a journal of format 4 has the format %q after it was opened", text)
	}
}
