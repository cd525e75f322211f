package segments

import (
	"fmt"
	"io"
	"runtime"
	"testing"

	"weir/internal/disk"
	"weir/internal/engine/journal/blocks"
)

// filled returns a sealed segment of this size on the real disk, full of small batches, and their
// number.
func filled(t *testing.T, size int64, packed bool) (seg *Segment, records int) {
	t.Helper()
	f, err := disk.OS(t.TempDir()).Create(Name(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	seg = new(Segment)
	salt := [8]byte{1}
	if seg.Init(f, salt, 1, size); packed {
		seg.Pack(new(blocks.Cache))
	}
	if err := seg.File.WriteAt(0, seg.Header(salt)); err != nil {
		t.Fatal(err)
	}
	payload := []byte("a small batch")
	var g GroupBuffer
	next := uint64(1)
	for seg.Fits(10*200, 10, 10*KeyRoom) {
		g.Begin()
		for range 10 {
			records++
			g.Add(seg, &Record{
				Kind: KindBatch, Log: uint64(records % 10), Seq: uint64(records), Count: 1, Payload: payload, PayloadSum: Sum(0, payload),
				ContentType: "application/json", Key: fmt.Sprintf("key %d", records), Publisher: fmt.Sprintf("publisher %d", records), Tag: "tag",
			})
		}
		if err := seg.File.WriteAt(g.Off, g.Buffers(seg.Seed, next)...); err != nil {
			t.Fatal(err)
		}
		next++
	}
	if err := seg.Seal(next, nil); err != nil {
		t.Fatal(err)
	}
	return seg, records
}

// A copy of a segment, which is how the journal scrubs it, allocates neither for each record or
// group, nor for the index: a scrub of a large journal would otherwise keep the garbage collector
// busy.
func TestCopyAllocatesLittle(t *testing.T) {
	for _, size := range []int64{16 << 20, 1 << 20} {
		packed := size < 16<<20
		seg, records := filled(t, size, packed)
		scrub := func() {
			if err := seg.Copy(io.Discard, Part{}, func(err error) { t.Error(err) }); err != nil {
				t.Error(err)
			}
		}
		scrub() // fills the pools
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		scrub()
		runtime.ReadMemStats(&after)
		bytes, objects := after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
		// The garbage collector and the race detector make pools forget buffers. A plain segment needs two
		// of LongRun bytes, which are less than its index. A compressed segment needs one for each block.
		if objects > uint64(records)/20 || !packed && bytes > 2*LongRun+64<<10 {
			t.Errorf("scrub of %d records, compressed %t: allocated %d bytes in %d objects", records, packed, bytes, objects)
		}
	}
}
