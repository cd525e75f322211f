package journal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir/internal/disk"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/repair"
	"weir/internal/engine/journal/segments"
)

// verifyRepaired verifies a repaired journal against a history. Every acknowledged entry must be
// present byte for byte or marked as lost, and every document must be unchanged or reported as
// lost. If unknown is true, the repair could not tell which records were lost, so any entry or
// document may be missing. verifyRepaired returns the number of lost entries.
func verifyRepaired(fs *faulty.FS, h *history, lostDocs []string, unknown bool) (lost int, err error) {
	j, err := Open(fs, small)
	if err != nil {
		return 0, err
	}
	defer j.Close()
	for key, d := range h.docs {
		doc, err := j.Get(background, key)
		if errors.Is(err, engine.ErrNotFound) && (slices.Contains(lostDocs, key) || slices.Contains(lostDocs, "") || unknown) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("document %s: %w", key, err)
		}
		if string(doc.Value) != *d.acked {
			if unknown { // the lost records may include an update, or a deletion and a new creation
				continue
			}
			return 0, fmt.Errorf("document %s has value %q", key, doc.Value)
		}
		l, err := j.Open(background, doc.Created, &fixed{})
		if err != nil {
			return 0, err
		}
		for seq, size := range d.entries {
			e, err := l.Read(background, seq)
			switch {
			case seq < d.low:
				if err == nil && e.Flags&engine.Lost == 0 && !unknown {
					return 0, fmt.Errorf("trimmed entry %d of %s reappeared", seq, key)
				}
			case err == nil && e.Flags&engine.Lost != 0, err != nil && unknown:
				lost++
			case err != nil:
				return 0, fmt.Errorf("entry %d of %s: %w", seq, key, err)
			case !bytes.Equal(e.Payload, payloadOf(key, seq, size)):
				return 0, fmt.Errorf("entry %d of %s: payload differs", seq, key)
			}
		}
		l.Close()
	}
	docs, err := j.List(background, "", "", 100)
	for _, d := range docs {
		if h.docs[d.Key] == nil && !unknown {
			return 0, fmt.Errorf("deleted document %s reappeared", d.Key)
		}
	}
	return lost, err
}

// repairAndVerify repairs a journal and verifies the repaired journal. It returns the result of the
// repair and the number of lost entries. The parameter unknown means that the repair cannot tell
// which records were lost.
func repairAndVerify(t *testing.T, what string, fs *faulty.FS, h *history, unknown bool) (*repair.Result, int) {
	t.Helper()
	before := fs.Files()
	r, err := repair.Run(fs, repair.Options{})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if len(r.After.Damages) > 0 {
		t.Fatalf("%s: after the repair, these damages remain: %+v; before it there were %+v", what, r.After.Damages, r.Before.Damages)
	}
	for _, name := range r.Aside {
		if _, left := before[name]; left && !bytes.Equal(fs.Files()[disk.AsidePrefix+name], before[name]) {
			t.Fatalf("%s: %s was changed when it was set aside", what, name)
		}
	}
	lost, err := verifyRepaired(fs.Crash(faulty.LoseAll, nil), h, r.Documents, unknown || r.Before.MayBeLost > 0)
	if err != nil {
		t.Fatalf("%s: %v (damages %+v, losses %+v)", what, err, r.Before.Damages, r.Losses)
	}
	return r, lost
}

// segmentFiles returns the names of all segment files, sorted.
func segmentFiles(fs *faulty.FS) (names []string) {
	for name := range fs.Files() {
		if _, ok := segments.NumberOf(name); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// readable opens a journal and reads all of it.
func readable(fs *faulty.FS) error {
	j, err := Open(fs, small)
	if err != nil {
		return err
	}
	defer j.Close()
	docs, err := j.List(background, "", "", 100)
	for _, d := range docs {
		l, err := j.Open(background, d.Created, &fixed{})
		if err != nil {
			return err
		}
		if err := l.Scan(background, 0, 0, func(*engine.Entry) bool { return true }); err != nil {
			return err
		}
	}
	return err
}

// Repair corrects a single flipped bit and loses nothing, unless the bit is in a payload of more
// than mendable bytes. If Open refuses the journal because of the bit, a check finds the damage.
func TestRepairBitFlips(t *testing.T) {
	fs, h := stories(t)
	files := fs.Files()
	rng := rand.New(rand.NewPCG(3, 9))
	names := segmentFiles(fs)
	found, fine := 0, 0
	for n := range faulty.Cases(250) {
		name := names[n%len(names)]
		off := rng.Int64N(int64(len(files[name])))
		if used := len(strings.TrimRight(string(files[name]), "\x00")); n%4 > 0 && used > 0 {
			off = rng.Int64N(int64(used))
		}
		bit := uint(rng.IntN(8))
		after := fs.Crash(faulty.LoseNothing, nil)
		after.Flip(name, off, bit)
		refused := readable(after.Crash(faulty.LoseNothing, nil)) != nil
		what := fmt.Sprintf("bit %d at %d of %s", bit, off, name)
		r, lost := repairAndVerify(t, what, after, h, false)
		if len(r.Before.Damages) == 0 {
			if fine++; refused {
				t.Fatalf("%s: Open refuses the journal, but the check finds no damage", what)
			}
			continue
		}
		if found++; lost > 0 || len(r.Losses)+len(r.Documents) > 0 {
			for _, d := range r.Before.Damages {
				// A batch may be lost: its payload may be too long to search for the flipped bit.
				if d.Fate == repair.Lost && d.What == "batch" {
					lost = 0
				}
			}
			if lost > 0 {
				t.Fatalf("%s: lost entries %+v and documents %q, damages %+v", what, r.Losses, r.Documents, r.Before.Damages)
			}
		}
	}
	t.Logf("%d flips damaged the journal, %d had no effect", found, fine)
	if faulty.Cases(250) == 250 && found < 80 {
		t.Errorf("the check found only %d of the flips, want at least 80", found)
	}
}

// The test overwrites ranges of up to 4 KiB. After the repair, the overwritten entries are marked
// as lost, and everything else is present.
func TestRepairOverwrittenRanges(t *testing.T) {
	fs, h := stories(t)
	files := fs.Files()
	rng := rand.New(rand.NewPCG(8, 1))
	lostAll, documents := 0, 0
	for n := range faulty.Cases(150) {
		after := fs.Crash(faulty.LoseNothing, nil)
		what := ""
		for range 1 + n%2 {
			names := segmentFiles(fs)
			name := names[rng.IntN(len(names))]
			used := int64(len(strings.TrimRight(string(files[name]), "\x00")))
			off := rng.Int64N(max(used, 1)) &^ 511
			length := int64(512 << rng.IntN(4))
			spoil(t, after, name, off, length, rng)
			what += fmt.Sprintf("%d bytes at %d of %s ", length, off, name)
		}
		r, lost := repairAndVerify(t, what, after, h, false)
		lostAll += lost
		documents += len(r.Documents)
	}
	t.Logf("%d entries and %d documents lost", lostAll, documents)
	if faulty.Cases(150) == 150 && (lostAll == 0 || documents == 0) {
		t.Error("nothing was ever lost: the test does no real damage")
	}
}

// spoil overwrites a range of a file with random bytes or zeros. The overwritten range is durable.
func spoil(t *testing.T, fs *faulty.FS, name string, off, length int64, rng *rand.Rand) {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, _ := f.Size()
	b := make([]byte, min(length, size-off))
	if rng.IntN(2) == 0 {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
	if err := errors.Join(f.WriteAt(off, b), f.SyncData()); err != nil {
		t.Fatal(err)
	}
}

// A segment file is missing. The check reports it, and after the repair the rest can be read.
func TestRepairMissingSegment(t *testing.T) {
	fs, h := stories(t)
	listed := segmentsOf(t, fs, anyRecord)
	for _, x := range listed[:len(listed)-1] {
		n := x.Seg.Number
		after := fs.Crash(faulty.LoseNothing, nil)
		if err := errors.Join(after.Remove(segments.Name(n)), after.SyncDir()); err != nil {
			t.Fatal(err)
		}
		r, _ := repairAndVerify(t, segments.Name(n), after, h, false)
		if d := r.Before.Damages; len(d) == 0 || d[0].File != segments.Name(n) || !strings.Contains(d[0].Why, "missing") {
			t.Errorf("damages reported after %s was removed: %+v", segments.Name(n), d)
		}
	}
}

var everyCut = flag.Int("journal.every", 7, "TestRepairInterrupted makes only one in this many of its power cuts; 1 makes all")

// The test cuts the power during a repair, before calls that change the disk, and loses unsynced
// bytes in every pattern. Then it does the same during the next repair. The journal can still be
// repaired, and loses no more than without the power cuts.
func TestRepairInterrupted(t *testing.T) {
	fs, h := stories(t)
	records := recordsOf(t, fs)
	outcomes := map[string]int{}
	for _, victims := range [][]planted{{records[3]}, {records[len(records)-2]}, {records[5], records[len(records)/2], records[len(records)-5]}, nil} {
		damaged := fs.Crash(faulty.LoseNothing, nil)
		for _, v := range victims {
			for i := range int64(16) {
				damaged.Flip(v.file, v.off+20+i, uint(i%8))
			}
		}
		if victims == nil {
			damaged.Remove(records[len(records)/2].file)
			damaged.Remove(directory.EndFile)
			damaged = damaged.Crash(faulty.LoseNothing, nil)
		}
		whole, least := repairAndVerify(t, "no power cut", damaged.Crash(faulty.LoseNothing, nil), h, false)
		unknown := whole.Before.MayBeLost > 0
		images := func(fs *faulty.FS) []image {
			return crashImagesOf(fs, h, func() {
				if _, err := repair.Run(fs, repair.Options{}); err != nil {
					t.Fatal(err)
				}
			})
		}
		again := func(im image) {
			t.Helper()
			plain := im.fs.Crash(faulty.LoseNothing, nil)
			if j, err := Open(plain, small); err == nil { // Open does not notice every damage
				j.Close()
				if names, _ := plain.List(); slices.ContainsFunc(names, disk.Staged) {
					t.Errorf("power cut before %s: opening leaves %q behind", im.at, names)
				}
			}
			r, lost := repairAndVerify(t, "power cut before "+im.at, im.fs.Crash(faulty.LoseNothing, nil), h, unknown)
			outcome := "repaired again"
			if len(r.Before.Damages) == 0 {
				outcome = "complete"
			}
			if outcomes[outcome]++; lost > least || r.Before.MayBeLost > whole.Before.MayBeLost {
				t.Fatalf("power cut before %s: %d entries lost, %d may be lost; without the power cut %d and %d", im.at, lost, r.Before.MayBeLost, least, whole.Before.MayBeLost)
			}
		}
		for i, im := range images(damaged.Crash(faulty.LoseNothing, nil)) {
			if i%*everyCut == 0 && !faulty.LeftOut(i) {
				again(im)
			}
			if i%(17**everyCut) == 0 {
				for k, second := range images(im.fs.Crash(faulty.LoseNothing, nil)) {
					if second.at = im.at + ", then " + second.at; k%*everyCut == 0 && !faulty.LeftOut(k) {
						again(second)
					}
				}
			}
		}
	}
	t.Log(outcomes)
	if again, complete := faulty.Cases(100), faulty.Cases(20)/2; outcomes["repaired again"] < again || outcomes["complete"] < complete {
		t.Errorf("outcomes %v, want at least %d repaired again and %d complete", outcomes, again, complete)
	}
}

// A repair rewrites large payloads that fill more than one segment, without changing a byte of
// them.
func TestRepairLargePayloads(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	j, err := Open(fs, Options{SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{j: j, h: h, logs: map[string]engine.Log{}}
	if err := errors.Join(w.create("a", "x"), w.appendMany("a", 1, 60, 70_000), w.appendMany("a", 61, 90, 300)); err != nil {
		t.Fatal(err)
	}
	w.j.Close()
	for _, name := range segmentFiles(fs) {
		fs.Flip(name, 10, 1) // a bit in the segment's header
	}
	r, lost := repairAndVerify(t, "every header", fs, h, false)
	if lost > 0 || len(r.Losses) > 0 || len(r.Aside) < 4 {
		t.Errorf("%d entries lost, want 0, and at least 4 files set aside; result %+v", lost, r)
	}
	if err := openAndVerify(fs, h); err != nil {
		t.Error(err)
	}
}

// If the disk corrupts the segments that the repair writes, the repair keeps the old segments in
// use.
func TestRepairOnBadDisk(t *testing.T) {
	fs, h := stories(t)
	p := recordsOf(t, fs)[3]
	fs.Flip(p.file, p.off+20, 1)
	bad := fs.Crash(faulty.LoseNothing, nil)
	spoilt := ""
	bad.OnCall(func(c faulty.Call) error {
		name, staged := strings.CutPrefix(c.Name, "stage-new-")
		if _, ok := segments.NumberOf(name); ok && staged && c.Kind == faulty.Read && spoilt == "" && !bytes.Equal(bad.Files()[c.Name][segments.DataStart:][:16], make([]byte, 16)) {
			spoilt = name
			bad.Flip(c.Name, segments.DataStart+100, 3)
		}
		return nil
	})
	if _, err := repair.Run(bad, repair.Options{}); !errors.Is(err, engine.ErrDamaged) || !strings.Contains(err.Error(), spoilt) {
		t.Fatalf("the disk corrupted %q: the repair returned %v, want an error that names this file", spoilt, err)
	}
	bad.OnCall(nil)
	if r, lost := repairAndVerify(t, "second repair", bad, h, false); lost > 0 || len(r.Losses) > 0 {
		t.Errorf("lost %+v", r.Losses)
	}
}

// Some sectors of the disk cannot be read. Their content is lost, and everything around them is
// found.
func TestRepairUnreadable(t *testing.T) {
	fs, h := stories(t)
	rng := rand.New(rand.NewPCG(2, 6))
	names := segmentFiles(fs)
	lostAll := 0
	for range faulty.Cases(40) {
		after := fs.Crash(faulty.LoseNothing, nil)
		bad, from := names[rng.IntN(len(names))], rng.Int64N(small.SegmentSize)&^4095
		after.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.Read && c.Name == bad && c.Off < from+4096 && c.Off+int64(c.Len) > from {
				return syscall.EIO
			}
			return nil
		})
		r, err := repair.Run(after, repair.Options{})
		if err != nil {
			t.Fatalf("%s is unreadable at %d: repair: %v", bad, from, err)
		}
		if len(r.After.Damages) > 0 || after.Files()[disk.AsidePrefix+bad] == nil && slices.Contains(r.Aside, bad) {
			t.Fatalf("%s is unreadable at %d: after the repair: %+v, set aside %q", bad, from, r.After, r.Aside)
		}
		lost, err := verifyRepaired(after.Crash(faulty.LoseAll, nil), h, r.Documents, r.Before.MayBeLost > 0)
		if err != nil {
			t.Fatalf("%s is unreadable at %d: after the repair: %v", bad, from, err)
		}
		lostAll += lost
	}
	if faulty.Cases(40) == 40 && lostAll == 0 {
		t.Error("nothing was ever lost: the unreadable sectors held no data")
	}
}

// If there is no space for new segments, the repair changes nothing.
func TestRepairWithoutSpace(t *testing.T) {
	fs, _ := stories(t)
	p := recordsOf(t, fs)[3]
	fs.Flip(p.file, p.off+20, 1)
	before := fs.Files()
	for _, space := range []int64{0, 1000, endLen + 200, small.SegmentSize} {
		fs.Capacity(fs.Size() + space)
		if _, err := repair.Run(fs, repair.Options{}); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("with space for %d bytes, the repair returned %v, want %v", space, err, syscall.ENOSPC)
		}
		if !maps.EqualFunc(before, fs.Files(), bytes.Equal) {
			t.Errorf("with space for %d bytes, the repair changed the directory", space)
		}
	}
}
