package journal

import (
	"errors"
	"fmt"
	"testing"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/repair"
	"weir/internal/engine/journal/segments"
)

// manyStates returns a closed journal in which documents (the values stored under keys) were
// changed and a log was trimmed several times. So it contains old and new records of the same
// document, and old and new marks of the same log. (A mark is the record of a trim.) Some of these
// records are in sealed segments and some in the newest segment.
func manyStates(t *testing.T) (*faulty.FS, *history) {
	t.Helper()
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	err := errors.Join(w.create("a", "0"), w.create("b", "0"))
	for n := weir.Seq(1); n < 12; n++ {
		err = errors.Join(err, w.appendMany("a", 10*n, 10*n+9, 1000), w.update("a", fmt.Sprint(n)), w.trim("a", n, fmt.Sprint("note ", n)), w.create("c", "x"))
		if n < 11 {
			err = errors.Join(err, w.remove("c"))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	w.j.Close()
	return fs, h
}

// Opening a journal does not read superseded records of documents and trims in sealed segments. So
// a journal opens even if such a record is damaged. Damage to the newest record makes opening fail.
func TestSupersededStatesAreNotRead(t *testing.T) {
	fs, h := manyStates(t)
	records := recordsOf(t, fs)
	newest := map[string]int{}
	name := func(r *segments.Record) string {
		if r.Kind == segments.KindMark {
			return fmt.Sprint("mark ", r.Log)
		}
		return fmt.Sprint("document ", r.Log)
	}
	states := func(r *segments.Record) bool {
		return r.Kind == segments.KindMark || r.Kind == segments.KindDocument || r.Kind == segments.KindDeleted
	}
	for i := range records {
		if r := &records[i].r; states(r) {
			newest[name(r)] = i
		}
	}
	tail := records[len(records)-1].file
	old, current := 0, 0
	for i := range records {
		p := &records[i]
		if !states(&p.r) || p.file == tail {
			continue
		}
		after := fs.Crash(faulty.LoseNothing, nil)
		after.Flip(p.file, p.off+p.size-1, 3)
		err := openAndVerify(after, h)
		if newest[name(&p.r)] == i {
			if current++; !errors.Is(err, engine.ErrDamaged) {
				t.Errorf("the newest state of %s is damaged: opening returned %v, want %v", name(&p.r), err, engine.ErrDamaged)
			}
		} else if old++; err != nil {
			t.Errorf("an old state of %s is damaged: opening returned %v, want success", name(&p.r), err)
		}
	}
	if old < 10 || current < 1 {
		t.Errorf("the test damaged only %d old and %d new states", old, current)
	}
}

// If the index or the footer of a sealed segment is damaged, opening writes it again from the
// groups of the segment. If a group is damaged too, the journal is refused.
func TestIndexIsRebuilt(t *testing.T) {
	fs, h := manyStates(t)
	listed := segmentsOf(t, fs, anyRecord)
	sealed := listed[:len(listed)-1]
	for _, x := range sealed {
		n := x.Seg.Number
		for _, back := range []int64{1, footerLen - 10, footerLen + 1, footerLen + 5*segments.SlotSize} {
			what := fmt.Sprintf("%d bytes before the end of %s", back, segments.Name(n))
			after := fs.Crash(faulty.LoseNothing, nil)
			after.Flip(segments.Name(n), small.SegmentSize-back, 2)
			twice := after.Crash(faulty.LoseNothing, nil)
			twice.Flip(segments.Name(n), segments.DataStart+segments.FrameSize+100, 2)
			if err := openAndVerify(after, h); err != nil {
				t.Errorf("damage at %s: opening returned %v, want success", what, err)
			}
			if r, err := repair.Check(after, repair.CheckOptions{}); err != nil || len(r.Damages) > 0 {
				t.Errorf("damage at %s: the index was not written again: %+v, %v", what, r, err)
			}
			if err := openAndVerify(twice, h); !errors.Is(err, engine.ErrDamaged) {
				t.Errorf("damage at %s, and a damaged group: opening returned %v, want %v", what, err, engine.ErrDamaged)
			}
		}
	}
	if len(sealed) < 2 {
		t.Errorf("only %d sealed segments", len(sealed))
	}
}
