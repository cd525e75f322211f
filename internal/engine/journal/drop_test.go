package journal

import (
	"errors"
	"testing"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/repair"
)

// twoLogs returns a journal with a small log, of which 10 entries were trimmed, and a large log. A
// third log is empty.
func twoLogs(t *testing.T) (fs *faulty.FS, h *history, largest engine.LogID) {
	t.Helper()
	fs, h = faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	defer w.j.Close()
	for _, err := range []error{
		w.create("stream/small", "s"), w.create("stream/large", "l"), w.create("project/empty", "p"),
		w.appendMany("stream/small", 1, 30, 100), w.appendMany("stream/large", 1, 600, 300), w.trim("stream/small", 11, "note"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	doc, err := w.j.Get(background, "stream/large")
	if err != nil {
		t.Fatal(err)
	}
	if w.j.Stats().Segments < 3 {
		t.Fatal("the large log is too small for this test")
	}
	return fs, h, doc.Created
}

// An operator can measure the logs of a journal whose index does not fit in memory, and drop one of
// them. Sizes, Drop and the next Open do not read the entries of the dropped log into memory.
func TestDrop(t *testing.T) {
	fs, h, large := twoLogs(t)
	sizes, err := Sizes(fs)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, s := range sizes {
		got[s.Document.Key] = s.Batches
	}
	if len(got) != 3 || got["stream/small"] != 20 || got["stream/large"] != 600 || got["project/empty"] != 0 {
		t.Errorf("Sizes returned %v batches per log", got)
	}
	j, err := openWithoutEntries(fs)
	if err != nil {
		t.Fatal(err)
	}
	for id, l := range j.store.logs.All() {
		if l != nil && l.index.Len() > 0 {
			t.Errorf("log %d holds %d entries in memory", id, l.index.Len())
		}
	}
	j.closeAll()
	if err := Drop(fs, "stream/none"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("drop of a document that does not exist: %v", err)
	}
	if err := Drop(fs, "stream/large"); err != nil {
		t.Fatal(err)
	}
	delete(h.docs, "stream/large")

	again := newJournal(fs, small)
	if _, err := again.dir.Identify(); err != nil {
		t.Fatal(err)
	}
	r := newRecovery(again)
	for _, step := range []func() error{r.openFiles, r.findTail, r.readManifest, r.findDeleted, r.readIndexes} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if l := again.store.logs.Get(large); l != nil && l.index.Len() > 0 {
		t.Errorf("opening read %d entries of the dropped log", l.index.Len())
	}
	r.closeFiles()
	again.closeAll()
	if err := openAndVerify(fs, h); err != nil {
		t.Error(err)
	}
}

// A power cut during Drop leaves the log either complete or dropped. All other logs stay as they
// were.
func TestCrashDuringDrop(t *testing.T) {
	fs, h, _ := twoLogs(t)
	h.doc("stream/large").gone = true
	images := crashImagesOf(fs, h, func() {
		if err := Drop(fs, "stream/large"); err != nil {
			t.Fatal(err)
		}
	})
	if len(images) == 0 {
		t.Fatal("Drop wrote nothing")
	}
	for i, im := range images {
		if faulty.LeftOut(i) {
			continue
		}
		verifyImage(t, im, false)
	}
}

// On a full disk, Drop uses the space that is reserved for deletions.
func TestDropOnAFullDisk(t *testing.T) {
	fs, h, _ := twoLogs(t)
	fs.Capacity(1)
	if err := Drop(fs, "stream/large"); err != nil {
		t.Fatal(err)
	}
	delete(h.docs, "stream/large")
	if err := openAndVerify(fs, h); err != nil {
		t.Error(err)
	}
}

// Sizes and a check count batches, and a check counts closed gaps. The closing of a stream is neither,
// unless it closes a gap as well.
func TestCountsWithoutMarkers(t *testing.T) {
	marker := func(first, seq weir.Seq, flags engine.Flags) *engine.Entry {
		return &engine.Entry{Header: engine.Header{Kind: engine.GapClosed, First: first, Seq: seq, Flags: flags}}
	}
	for name, c := range map[string]struct {
		entries []*engine.Entry
		gaps    int
	}{
		"closed":            {[]*engine.Entry{batchOf(1, "x"), batchOf(2, "y"), marker(3, 3, engine.Ends)}, 0},
		"closed with a gap": {[]*engine.Entry{batchOf(1, "x"), batchOf(2, "y"), marker(3, 5, engine.Ends)}, 1},
		"a gap":             {[]*engine.Entry{batchOf(1, "x"), marker(2, 3, 0), batchOf(4, "y")}, 1},
	} {
		fs := faulty.New()
		j, _, l := openOne(t, fs, &fixed{})
		for _, e := range c.entries {
			if err := l.Append(background, e); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := repair.Check(fs, repair.CheckOptions{})
		if err != nil || r.Batches != 2 || r.ClosedGaps != c.gaps {
			t.Errorf("%s: a check counts %d batches and %d closed gaps, want 2 and %d (%v)", name, r.Batches, r.ClosedGaps, c.gaps, err)
		}
		if sizes, err := Sizes(fs); err != nil || len(sizes) != 1 || sizes[0].Batches != 2 || sizes[0].Bytes != 2 {
			t.Errorf("%s: Sizes returned %+v (%v)", name, sizes, err)
		}
	}
}
