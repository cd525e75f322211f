package journal

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"weir/internal/disk"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/repair"
	"weir/internal/engine/journal/segments"
)

// threeFiles returns a journal of three segments. The first holds the documents a, b and c. In the
// second, b is updated and c is deleted. All three hold entries of the log of document a.
func threeFiles(t *testing.T) *faulty.FS {
	t.Helper()
	fs := faulty.New()
	w := newWorld(t, fs, newHistory())
	err := errors.Join(w.create("a", "a"), w.create("b", "good"), w.create("c", "c"), w.appendMany("a", 1, 80, 1000))
	err = errors.Join(err, w.update("b", "revoked"), w.remove("c"), w.appendMany("a", 81, 130, 1000), w.create("d", "d"), w.appendMany("a", 131, 150, 1000))
	if err != nil {
		t.Fatal(err)
	}
	w.j.Close()
	return fs
}

func without(t *testing.T, fs *faulty.FS, number uint64) *faulty.FS {
	t.Helper()
	after := fs.Crash(faulty.LoseNothing, nil)
	if err := errors.Join(after.Remove(segments.Name(number)), after.SyncDir()); err != nil {
		t.Fatal(err)
	}
	return after
}

// The record of a document was in a missing file. The remaining entries of the document's log are
// then orphans: the repair counts them and sets their files aside.
func TestRepairSetsOrphansAside(t *testing.T) {
	fs := without(t, threeFiles(t), 1)
	before := fs.Files()
	r, err := repair.Check(fs, repair.CheckOptions{})
	if err != nil || r.Orphans < 80 || r.MayBeLost < 500 {
		t.Fatalf("report %+v, %v", r, err)
	}
	done, err := repair.Run(fs, repair.Options{})
	if err != nil || !slices.Equal(done.Aside, []string{segments.Name(2), segments.Name(3)}) {
		t.Fatalf("set aside %+v, %v", done, err)
	}
	for _, name := range done.Aside {
		if !bytes.Equal(fs.Files()[disk.AsidePrefix+name], before[name]) {
			t.Errorf("%s was changed when it was set aside", name)
		}
	}
}

// Entries of a log without a document are not orphans if the deletion of the document is known.
func TestDeletedLogIsNotOrphan(t *testing.T) {
	fs := faulty.New()
	w, err := openWorld(fs, newHistory())
	if err == nil {
		err = errors.Join(w.create("x", "x"), w.create("a", "a"), w.appendMany("x", 1, 10, 100), w.appendMany("a", 1, 70, 1000), w.appendMany("x", 11, 20, 100))
	}
	if err == nil {
		err = errors.Join(w.remove("x"), w.appendMany("a", 71, 140, 1000))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.j.Close()
	want, log := 0, uint64(0)
	for _, p := range recordsOf(t, fs) {
		switch {
		case p.r.Kind == segments.KindDocument && p.r.Key == "a":
			log = p.r.Log
		case p.r.Kind == segments.KindBatch && p.r.Log == log && p.file != segments.Name(1):
			want++
		}
	}
	r, err := repair.Check(without(t, fs, 1), repair.CheckOptions{})
	if err != nil || r.Orphans != want || want == 0 {
		t.Fatalf("report %+v, %v, want %d orphans", r, err, want)
	}
}

// If a newer state of a document may be lost, the repair reports the document, and the Stale
// callback decides what becomes of it. The repair leaves a document alone if it was written after
// all lost data. Both rules also hold if an earlier repair was interrupted at any point. That
// repair may have copied an old state of a document to a place after the lost data.
func TestRepairAsksAboutStaleDocuments(t *testing.T) {
	fs := without(t, threeFiles(t), 2)
	// Also damage a record in the first segment. The repair then rewrites that segment, including
	// the state of b that may be outdated.
	fs.Flip(segments.Name(1), segments.DataStart+100, 3)
	hold := func(what string, fs *faulty.FS) {
		t.Helper()
		var asked []string
		o := repair.Options{}
		o.Stale = func(d engine.Document) ([]byte, error) {
			asked = append(asked, d.Key)
			if d.Key == "b" {
				return []byte("suspended"), nil
			}
			return nil, nil
		}
		r, err := repair.Run(fs, o)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if len(r.Before.Damages) > 0 && (!slices.Equal(asked, []string{"a", "b", "c"}) || !slices.Equal(asked, r.Before.MayBeStale)) {
			t.Fatalf("%s: Stale was called for %q, and MayBeStale is %q; want a, b and c in both", what, asked, r.Before.MayBeStale)
		}
		if len(r.After.MayBeStale) > 0 {
			t.Fatalf("%s: documents may still be stale: %+v", what, r.After)
		}
		j, err := Open(fs, small)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		for key, value := range map[string]string{"a": "a", "b": "suspended", "c": "c", "d": "d"} {
			if d, err := j.Get(background, key); err != nil || string(d.Value) != value {
				t.Fatalf("%s: after the repair, document %s is %q, %v", what, key, d.Value, err)
			}
		}
	}
	hold("uninterrupted", fs.Crash(faulty.LoseNothing, nil))
	work := fs.Crash(faulty.LoseNothing, nil)
	o := repair.Options{}
	o.Stale = func(d engine.Document) ([]byte, error) {
		if d.Key == "b" {
			return []byte("suspended"), nil
		}
		return nil, nil
	}
	images := crashImagesOf(work, newHistory(), func() {
		if _, err := repair.Run(work, o); err != nil {
			t.Fatal(err)
		}
	})
	for i, im := range images {
		if faulty.LeftOut(i) {
			continue
		}
		hold("power cut before "+im.at, im.fs)
	}
	if len(images) < 100 {
		t.Errorf("only %d power cuts", len(images))
	}
}
