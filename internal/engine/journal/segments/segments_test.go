package segments

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"weir/internal/disk/faulty"
)

// Only the unreadable sector itself is replaced with zeros, wherever a read begins.
func TestReadableBySector(t *testing.T) {
	fs := faulty.New()
	f, err := fs.Create(Name(1))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content := make([]byte, 16*sector)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	if err := f.WriteAt(0, content); err != nil {
		t.Fatal(err)
	}
	var seg Segment
	seg.Init(f, [8]byte{1}, 1, int64(len(content)))
	const off, bad = sector + 104, 3 * sector
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind == faulty.Read && c.Off < bad+sector && c.Off+int64(c.Len) > bad {
			return syscall.EIO
		}
		return nil
	})
	got := make([]byte, 4*sector)
	var found []int64
	err = seg.readable(got, off, func(from, to int64, err error) { found = append(found, from, to) })
	if !slices.Equal(found, []int64{bad, bad + sector}) || !errors.Is(err, syscall.EIO) {
		t.Errorf("the unreadable sectors are %d, want one from %d to %d; error %v", found, bad, bad+sector, err)
	}
	clear(content[bad : bad+sector])
	if !bytes.Equal(got, content[off:off+4*sector]) {
		t.Error("want zeros in the unreadable sector only")
	}
}
