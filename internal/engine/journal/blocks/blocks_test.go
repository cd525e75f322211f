package blocks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"weir/internal/disk"
	"weir/internal/disk/faulty"
)

const (
	testSeed = 77
	testSize = 10*Size + 4096
)

// content returns compressible content with an incompressible block and a block of zeros.
func content() []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < testSize; i++ {
		fmt.Fprintf(&b, `{"id":%d,"type":"order.created","customer":"customer-%d"}`, i, i*7919%10007)
	}
	all := b.Bytes()[:testSize]
	r := rand.NewChaCha8([32]byte{1})
	r.Read(all[Start+2*Size : Start+3*Size])
	clear(all[Start+4*Size : Start+5*Size])
	return all
}

// write stores content in a file, in writes of different sizes. It leaves out the block of zeros.
func write(t *testing.T, fs disk.FS, all []byte) *File {
	t.Helper()
	f, err := fs.Create("f")
	if err != nil {
		t.Fatal(err)
	}
	x := Create(f, testSeed, testSize, &Cache{})
	if err := x.WriteAt(0, all[:Start]); err != nil {
		t.Fatal(err)
	}
	for off := Start; off < testSize; {
		n := min(1+off%50000, testSize-off)
		if zeros := Start + 4*Size; off <= zeros && off+n > zeros {
			n = zeros - off
			if n == 0 {
				off += Size
				continue
			}
		}
		if err := x.WriteAt(int64(off), all[off:off+n/2], all[off+n/2:off+n]); err != nil {
			t.Fatal(err)
		}
		off += n
	}
	if err := x.SyncData(); err != nil {
		t.Fatal(err)
	}
	return x
}

func open(t *testing.T, fs disk.FS) *File {
	t.Helper()
	f, err := fs.Open("f")
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(f, testSeed, testSize, &Cache{})
	if err != nil || x == nil {
		t.Fatalf("file %v, error %v", x, err)
	}
	return x
}

// A file has the content that was written, wherever and from however many goroutines it is read.
func TestReadAt(t *testing.T) {
	all, fs := content(), faulty.New()
	written := write(t, fs, all)
	for _, x := range []*File{written, open(t, fs)} {
		if x.Fault() != nil || x.Saved() < testSize/2 {
			t.Errorf("fault %v, saved %d of %d bytes", x.Fault(), x.Saved(), testSize)
		}
		var wg sync.WaitGroup
		for seed := range uint64(8) {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, 0))
				for range 400 {
					off := r.IntN(testSize)
					b := make([]byte, 1+r.IntN([]int{testSize - off, min(1000, testSize-off)}[r.IntN(2)]))
					if n, err := x.ReadAt(b, int64(off)); n != len(b) || err != nil || !bytes.Equal(b, all[off:off+n]) {
						t.Errorf("%d bytes at %d: %d read, error %v", len(b), off, n, err)
					}
				}
			})
		}
		wg.Wait()
		if n, err := x.ReadAt(make([]byte, 10), testSize-4); n != 4 || err != io.EOF {
			t.Errorf("read across the end: %d bytes, error %v", n, err)
		}
		if err := x.WriteAt(Start, []byte{1}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("write to a complete file: %v", err)
		}
	}
}

// The cache does not grow beyond its limit.
func TestCacheIsBounded(t *testing.T) {
	all, fs := content(), faulty.New()
	x := write(t, fs, all)
	for range 2 * cacheEntries {
		e, _, err := x.cache.take(&File{File: x.File, seed: x.seed, size: x.size, block: x.block, at: x.at}, 3, 1)
		if err != nil {
			t.Fatal(err)
		}
		x.cache.release(e)
	}
	if n, m := len(x.cache.all), len(x.cache.found); n != cacheEntries || m > cacheEntries {
		t.Errorf("%d entries, %d found, want at most %d", n, m, cacheEntries)
	}
}

// slowFile counts reads, and lets them wait until the channel end is closed.
type slowFile struct {
	disk.File
	reads atomic.Int64
	end   chan struct{}
}

func (f *slowFile) ReadAt(b []byte, off int64) (int, error) {
	f.reads.Add(1)
	<-f.end
	return f.File.ReadAt(b, off)
}

// Two readers of a block share one read of the file. The second one does not wait for a mutex:
// otherwise synctest.Wait would never return, and neither would the scheduler of a simulation.
func TestReadersShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, fs := content(), faulty.New()
		x := write(t, fs, all)
		slow := &slowFile{File: x.File, end: make(chan struct{})}
		x.File = slow
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				b := make([]byte, 100)
				if _, err := x.ReadAt(b, Start); err != nil || !bytes.Equal(b, all[Start:][:100]) {
					t.Errorf("read %q, error %v", b, err)
				}
			})
		}
		synctest.Wait()
		close(slow.end)
		readers.Wait()
		if n := slow.reads.Load(); n != 1 {
			t.Errorf("the file was read %d times, want once", n)
		}
	})
}

// A flipped bit, at every place of the file, makes at most one block unreadable, and no read returns
// wrong bytes. A damaged table is replaced by a search for blocks.
func TestFlippedBits(t *testing.T) {
	all, fs := content(), faulty.New()
	size, err := write(t, fs, all).File.Size()
	if err != nil {
		t.Fatal(err)
	}
	faults := 0
	for off := int64(Start); off < size; off += 61 * int64(faulty.Step()) {
		fs.Flip("f", off, uint(off)%8)
		x := open(t, fs)
		lost := unreadable(t, x, all)
		if lost > 1 || x.Fault() != nil && lost > 0 {
			t.Errorf("bit at %d flipped: %d blocks lost, fault %v", off, lost, x.Fault())
		}
		if x.Fault() != nil {
			faults++
		}
		fs.Flip("f", off, uint(off)%8)
	}
	if faults == 0 && faulty.Step() == 1 {
		t.Error("the table was never damaged")
	}
}

// A file that was cut short has its first blocks.
func TestCutShort(t *testing.T) {
	all, fs := content(), faulty.New()
	x := write(t, fs, all)
	if err := x.File.Truncate(int64(x.at[6]) + 100); err != nil {
		t.Fatal(err)
	}
	y := open(t, fs)
	if lost := unreadable(t, y, all); lost != x.count()-6 || y.Fault() == nil {
		t.Errorf("%d blocks lost of %d, fault %v", lost, x.count(), y.Fault())
	}
	if err := x.File.Truncate(Start); err != nil {
		t.Fatal(err)
	}
	f, _ := fs.Open("f")
	if x, err := Open(f, testSeed, testSize, &Cache{}); x != nil || err != nil {
		t.Errorf("a file without blocks: %v, error %v", x, err)
	}
}

// unreadable returns the number of blocks that cannot be read. The others must have their content.
func unreadable(t *testing.T, x *File, all []byte) (lost int) {
	t.Helper()
	b := make([]byte, Size)
	for i := range x.count() {
		off := Start + i*Size
		n, err := x.ReadAt(b[:x.length(i)], int64(off))
		if errors.Is(err, ErrDamaged) {
			lost++
		} else if err != nil || !bytes.Equal(b[:n], all[off:off+x.length(i)]) {
			t.Fatalf("block %d: %d bytes, error %v", i, n, err)
		}
	}
	return lost
}

// Readers of damaged blocks that share the cache all get an error.
func TestDamagedBlocksSideBySide(t *testing.T) {
	all, fs := content(), faulty.New()
	x := write(t, fs, all)
	var readers sync.WaitGroup
	for g := range 16 {
		readers.Go(func() {
			for range 200 {
				bad := &File{File: x.File, seed: x.seed + 1 + uint32(g), size: x.size, block: x.block, at: x.at, cache: x.cache}
				if n, err := bad.ReadAt(make([]byte, 10), Start+3*Size); err == nil {
					t.Errorf("a damaged block was read: %d bytes, no error", n)
				}
			}
		})
	}
	readers.Wait()
}
