package journal

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine/journal/segments"
)

// TestReclaim removes most entries of many logs, so that every segment becomes sparse. When the
// journal is idle, it shrinks until it is at most two segments larger than the records that are
// still needed. The remaining data is complete, even after a crash.
func TestReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		w := newWorld(t, fs, h)
		const logs, entries = 20, 60
		for i := range logs {
			if err := w.create(fmt.Sprint("log", i), "x"); err != nil {
				t.Fatal(err)
			}
		}
		for seq := weir.Seq(1); seq <= entries; seq++ {
			for i := range logs {
				if err := w.append(fmt.Sprint("log", i), seq, 700); err != nil {
					t.Fatal(err)
				}
			}
		}
		full := w.j.Stats()
		for i := range logs {
			key, err := fmt.Sprint("log", i), error(nil)
			switch i % 4 {
			case 0:
				err = w.remove(key)
			case 1:
				err = w.trim(key, entries+1, "empty")
			case 2:
				err = w.trim(key, entries-5, "nearly")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		s := w.j.Stats()
		fixed := int64(s.Segments) * (segments.DataStart + w.j.commit.reserve + 1024) // overhead of all segments
		if s.Disk > s.Live+2*small.SegmentSize+fixed || s.Copied == 0 {
			t.Errorf("the journal did not shrink: %+v, when full %+v", s, full)
		}
		if err := h.verifyOpen(w); err != nil {
			t.Error(err)
		}
		w.j.Close()
		if got, want := fs.Size(), s.Disk+endLen+1024; got > want {
			t.Errorf("%d bytes on disk, want at most %d", got, want)
		}
		if err := openAndVerify(fs.Crash(faulty.LoseAll, nil), h); err != nil {
			t.Error(err)
		}
	})
}

// verifyOpen closes the logs of a world and verifies its journal against the history.
func (h *history) verifyOpen(w *world) error {
	for _, l := range w.logs {
		l.Close()
	}
	return h.verify(w.j)
}

// TestTombstoneOutlivesItsSegment deletes a document whose old state stays in a segment that is not
// reclaimed. Then the segment with the tombstone (the record of the deletion) is reclaimed. The
// document does not reappear.
func TestTombstoneOutlivesItsSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		w := newWorld(t, fs, h)
		steps := []error{w.create("gone", "x"), w.create("kept", "x"), w.create("temp", "x")}
		steps = append(steps, w.appendMany("kept", 1, 50, 1000), w.appendMany("temp", 1, 40, 1000)) // the log of "kept" fills the first segment
		steps = append(steps, w.remove("gone"), w.appendMany("temp", 41, 200, 1000), w.trim("temp", 200, ""))
		for i, err := range steps {
			if err != nil {
				t.Fatal(i, err)
			}
		}
		tomb, _ := w.j.store.deleted.Get("gone")
		born := tomb.birth
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.j.store.segment(1) == nil || w.j.store.segment(born) != nil {
			t.Fatalf("segment 1 was freed, or segment %d was not", born)
		}
		w.j.Close()
		if err := openAndVerify(fs.Crash(faulty.LoseAll, nil), h); err != nil {
			t.Error(err)
		}
	})
}

// TestCopyOvertaken queues a trim, an update and a deletion, and after them copies of the records
// that they remove. All are in the same group. The copies have no effect, in memory or after a
// restart.
func TestCopyOvertaken(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	for _, key := range []string{"a", "b", "c"} {
		if err := w.create(key, "old"); err != nil {
			t.Fatal(err)
		}
		if err := w.appendMany(key, 1, 10, 100); err != nil {
			t.Fatal(err)
		}
	}
	s := w.j.store.segment(1)
	all := w.j.reclaim.newCopy()
	for slots := s.Slots; len(slots) > 0; slots = slots[segments.SlotSize:] {
		c, err := w.j.reclaim.load(s, segments.DecodeSlot(slots))
		if err != nil {
			t.Fatal(err)
		}
		if c != nil {
			all.copies = append(all.copies, *c)
			all.size += c.record.Size()
		}
	}
	if len(all.copies) != 33 {
		t.Fatalf("%d records to copy, want 33", len(all.copies))
	}
	slices.Reverse(all.copies) // so that a later copy cannot hide the effect of an earlier one
	old, err := w.j.Get(background, "b")
	if err != nil {
		t.Fatal(err)
	}
	trim := &trimOp{h: w.logs["a"].(*handle), low: 8, note: []byte("n"), done: make(chan error, 1)}
	update, remove := newDocumentOp(w.j, updateDocument, "b", "new"), newDocumentOp(w.j, deleteDocument, "c", "")
	update.rev = old.Revision
	w.j.queueTogether(trim, update, remove, all)
	for _, done := range []chan error{trim.done, update.done, remove.done, all.done} {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	value := "new"
	h.with(func() {
		h.doc("a").low, h.doc("a").lowMay, h.doc("a").note = 8, 8, "n"
		h.doc("b").acked = &value
		delete(h.docs, "c")
	})
	delete(w.logs, "c")
	if err := h.verifyOpen(w); err != nil {
		t.Error(err)
	}
	w.j.Close()
	if err := openAndVerify(fs, h); err != nil {
		t.Error(err)
	}
}

// TestDeleteOvertakesCopy deletes a document while a copy of it is in flight. The bytes of the
// document must be subtracted from the segment in which they are counted, which is the segment of
// the copy.
func TestDeleteOvertakesCopy(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	defer w.j.Close()
	for _, key := range []string{"a", "b"} {
		if err := w.create(key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	before := w.j.store.segment(1)
	if err := w.appendMany("b", 1, 70, 1000); err != nil { // fills the segment and starts the next one
		t.Fatal(err)
	}
	old := w.j.store.document("a")
	if old.At.Segment != 1 || w.j.commit.active == before {
		t.Fatalf("document a is in segment %d, want segment 1, which must be full", old.At.Segment)
	}
	o := w.j.reclaim.newCopy()
	c, err := w.j.reclaim.load(before, segments.Slot{
		Off: old.At.Off, Head: segments.RecordSize + 1, Size: 1, Kind: segments.KindDocument, Log: uint64(old.Created), Seq: uint64(old.Revision),
	})
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	o.copies, o.size = append(o.copies, *c), c.record.Size()
	remove := newDocumentOp(w.j, deleteDocument, "a", "")
	w.j.queueTogether(o, remove)
	if err := errors.Join(<-o.done, <-remove.done); err != nil {
		t.Fatal(err)
	}
	if err := w.j.exact(); err != nil {
		t.Error(err)
	}
}

// TestTombstonesAreFreed creates and deletes thousands of documents while the first segment stays
// in use. Each tombstone (the record of a deletion) is freed together with the segments that held
// its document, so memory and disk usage do not grow with the number of deletions.
func TestTombstonesAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		w := newWorld(t, fs, h)
		defer w.j.Close()
		if err := errors.Join(w.create("kept", "x"), w.appendMany("kept", 1, 50, 1000)); err != nil {
			t.Fatal(err)
		}
		for i := range 3000 {
			key := fmt.Sprint("short-lived ", i)
			if err := errors.Join(w.create(key, "x"), w.append(key, 1, 100), w.remove(key)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := w.j.store.deleted.Len(); n > 1000 || w.j.store.segment(1) == nil {
			t.Errorf("%d tombstones of 3000 are left, want at most 1000, and segment 1 must stay; %+v", n, w.j.Stats())
		}
		if err := w.j.exact(); err != nil {
			t.Error(err)
		}
		next, err := Open(fs.Crash(faulty.LoseAll, nil), small)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		if a, b := w.j.store.deleted.Len(), next.store.deleted.Len(); a < b {
			t.Errorf("%d tombstones before a restart, %d after it, want no more than before", a, b)
		}
		if err := h.verify(next); err != nil {
			t.Error(err)
		}
	})
}
