package directory

import (
	"encoding/binary"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/disk/faulty"
)

// A slot of the file "end" is read as it was written, and zeros are not a valid slot.
func TestEndRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n [5]uint64
		for i := range n {
			n[i] = rapid.Uint64().Draw(t, "number")
		}
		r := endRecord{Count: n[0], Latest: Ending{n[1], int64(n[2]), n[3]}, size: int64(n[4])}
		binary.LittleEndian.PutUint64(r.salt[:], n[0]^n[4])
		b := r.encode()
		if got, ok := decodeEnd(b); got != r || !ok {
			t.Fatalf("%+v, want %+v", got, r)
		}
		if b[rapid.IntRange(0, endSlot-1).Draw(t, "at")] ^= 1; decodes(b) || decodes(make([]byte, endSlot)) {
			t.Fatal("a damaged slot or zeros decode as a valid slot")
		}
	})
}

func decodes(b []byte) bool {
	_, ok := decodeEnd(b)
	return ok
}

// A slot whose sync failed may be in the page cache only. The next process, which reads the slot
// there, makes it durable before it replaces the other slot.
func TestSlotThatWasNotSynced(t *testing.T) {
	fs := faulty.New()
	d := &Directory{FS: fs, Size: 1 << 20, Version: formatVersion}
	if err := d.CreateEnd(Ending{Group: 1}); err != nil {
		t.Fatal(err)
	}
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind == faulty.Sync {
			return syscall.EIO
		}
		return nil
	})
	if err := d.WriteEnd(Ending{Segment: 1, Group: 1}); err != nil {
		t.Fatal(err)
	}
	if err := d.SyncEnd(); err == nil {
		t.Fatal("the sync did not fail")
	}
	d.CloseEnd()
	fs.OnCall(nil)

	d = &Directory{FS: fs, Size: 1 << 20, Version: formatVersion}
	if err := d.ReadEnd(); err != nil {
		t.Fatal(err)
	}
	if err := d.Restate(d.End.Latest); err != nil {
		t.Fatal(err)
	}
	torn := int64((d.End.Count+1)%2) * endBlock // the slot that the next write replaces
	if err := d.End.file.WriteAt(torn, make([]byte, endSlot)); err != nil {
		t.Fatal(err)
	}
	if err := d.SyncEnd(); err != nil {
		t.Fatal(err)
	}
	if p, err := loadEnd(fs.Crash(faulty.LoseAll, nil)); err != nil || p.Latest.Segment != 1 {
		t.Fatalf("after a crash that tears the other slot: %+v, %v", p.Latest, err)
	}
}
