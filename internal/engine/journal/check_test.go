package journal

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"weir"
	"weir/internal/disk"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/repair"
	"weir/internal/engine/journal/segments"
)

func TestCheckOfUndamagedJournal(t *testing.T) {
	fs, h := offline(t)
	before := fs.Files()
	r, err := repair.Check(fs, repair.CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	batches := 0
	for _, d := range h.docs {
		for seq := range d.entries {
			if seq >= d.low {
				batches++
			}
		}
	}
	if len(r.Damages) != 0 || r.Batches != batches || r.Documents["a"] != 1 || r.Documents["b"] != 1 || len(r.Documents) != 2 {
		t.Errorf("report %+v, want %d batches", r, batches)
	}
	for name, content := range fs.Files() {
		if !bytes.Equal(content, before[name]) {
			t.Errorf("the check changed %s", name)
		}
	}
	j, err := Open(fs, small)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := repair.Check(fs, repair.CheckOptions{}); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("check while the journal is open: %v", err)
	}
	if _, err := repair.Check(faulty.New(), repair.CheckOptions{}); !errors.Is(err, ErrForeign) {
		t.Errorf("check of an empty directory: %v", err)
	}
}

// A crash may cut the newest write short. A check does not report a partial write as damage,
// however much of it reached the disk.
func TestCheckAfterCrash(t *testing.T) {
	for i, im := range crashImages(t, faulty.New(), newHistory(), script) {
		if i%5 > 0 || faulty.LeftOut(i) {
			continue
		}
		r, err := repair.Check(im.fs, repair.CheckOptions{})
		if errors.Is(err, ErrForeign) {
			continue // the crash came before the journal was created
		}
		if err != nil || len(r.Damages) > 0 {
			t.Fatalf("crash before %s: report %+v, error %v", im.at, r, err)
		}
	}
}

// planted is a record of a journal and its position on disk.
type planted struct {
	file string
	off  int64
	size int64
	r    segments.Record
}

// recordsOf returns all records of a journal, in the order of their positions.
func recordsOf(t *testing.T, fs *faulty.FS) (all []planted) {
	t.Helper()
	segmentsOf(t, fs, func(sl segments.Slot, r *segments.Record, n uint64) {
		r.Payload = bytes.Clone(r.Payload)
		all = append(all, planted{segments.Name(n), int64(sl.Off), int64(sl.Head) + int64(sl.Size), *r})
	})
	return all
}

// segmentsOf inspects the segments of an undamaged journal, which its newest manifest lists. It
// calls the function visit with each record and the number of its segment.
func segmentsOf(t *testing.T, fs *faulty.FS, visit func(segments.Slot, *segments.Record, uint64)) (listed []*segments.Inspection) {
	t.Helper()
	d, all := directory.Directory{FS: fs}, map[uint64]*segments.Segment{}
	err := d.ReadFormat()
	if err == nil {
		_, err = d.OpenSegments(func(number uint64) *segments.Segment {
			all[number] = new(segments.Segment)
			return all[number]
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	inspect := func(n uint64, visit func(segments.Slot, *segments.Record, uint64)) *segments.Inspection {
		x, err := all[n].Inspect(0, make([]byte, d.Size), func(sl segments.Slot, r *segments.Record) { visit(sl, r, n) })
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(all))) {
		if newest := inspect(n, func(segments.Slot, *segments.Record, uint64) {}); newest.Manifest > 0 && listed == nil {
			for _, n := range newest.List {
				listed = append(listed, inspect(n, visit))
			}
		}
	}
	for _, s := range all {
		s.File.Close()
	}
	return listed
}

// anyRecord is a visitor for segmentsOf that does nothing.
func anyRecord(segments.Slot, *segments.Record, uint64) {}

// stories returns a closed journal with records of every kind. Some records are in sealed segments
// and some in the newest segment, and some are no longer needed. The watermark of the newest
// segment says that all records in the segment were synced.
func stories(t *testing.T) (*faulty.FS, *history) {
	t.Helper()
	fs, h := faulty.New(), newHistory()
	w, err := openWorld(fs, h)
	if err == nil {
		err = script(w)
	}
	if err == nil {
		err = w.logs["a"].Append(background, &engine.Entry{Header: engine.Header{Kind: engine.GapClosed, First: 91, Seq: 92, Time: 92}})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.j.Close()
	return fs, h
}

// A check finds a flipped bit in any byte of any record, except in the padding of the record. It
// reports the file, the offset, the log and the sequence.
func TestCheckNamesEveryRecord(t *testing.T) {
	fs, _ := stories(t)
	kinds := map[segments.Kind]int{}
	rng := rand.New(rand.NewPCG(4, 4))
	for i, p := range recordsOf(t, fs) {
		if p.r.Kind == segments.KindBatch && i%12 > 0 {
			continue // there are many batches: test every twelfth record
		}
		for off := p.off; off < p.off+p.size; off++ {
			if off > p.off+60 && rng.IntN(30) > 0 {
				continue
			}
			if faulty.LeftOut(int(off - p.off)) {
				continue
			}
			after := fs.Crash(faulty.LoseNothing, nil)
			after.Flip(p.file, off, uint(rng.IntN(8)))
			r, err := repair.Check(after, repair.CheckOptions{})
			if err != nil || len(r.Damages) != 1 {
				t.Fatalf("flipped a bit of %s at %d (%s): report %+v, error %v", p.file, off, p.r.Kind.String(), r, err)
			}
			d := r.Damages[0]
			entry := p.r.Kind == segments.KindBatch || p.r.Kind == segments.KindGapClosed
			if d.File != p.file || d.Offset != p.off || d.What != p.r.Kind.String() || entry && (d.Seq == nil || *d.Seq != weir.Seq(p.r.Seq) || uint64(d.Log) != p.r.Log) {
				t.Fatalf("flipped a bit of %s at %d (%s %d of log %d): reported as %+v", p.file, off, p.r.Kind.String(), p.r.Seq, p.r.Log, d)
			}
			kinds[p.r.Kind]++
		}
	}
	t.Log(kinds)
	for k := segments.KindBatch; k <= segments.KindManifest; k++ {
		if kinds[k] == 0 {
			t.Errorf("no %s was damaged", k.String())
		}
	}
}

// A segment has lost its footer, its watermark and its last groups (a group is the records of one
// write). A check detects this by the numbers of the groups in the next segment.
func TestCheckSegmentWithLostEnd(t *testing.T) {
	fs, h := stories(t)
	listed := segmentsOf(t, fs, anyRecord)
	x := listed[len(listed)-2]
	n := x.Seg.Number
	if listed[len(listed)-1].Seg.Number != n+1 {
		t.Fatalf("segment %d is not followed by the next number", n)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	spoil(t, fs, segments.Name(n), x.End-8000, small.SegmentSize, rng)
	spoil(t, fs, segments.Name(n), watermarkAt, watermarkLen, rng)
	r, _ := repairAndVerify(t, "lost end", fs, h, false)
	if !slices.ContainsFunc(r.Before.Damages, func(d repair.Damage) bool { return strings.Contains(d.Why, "are missing") }) {
		t.Errorf("damages %+v, want one that says which groups are missing", r.Before.Damages)
	}
}
