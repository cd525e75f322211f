package faulty

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"weir/internal/disk"
)

// This file system and the real one give the same results for the same random calls.
func TestBehavesLikeRealFileSystem(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir := disk.OS(t.TempDir())
		pair := twins{t: t, real: dir, fake: New()}
		for range 300 {
			pair.step(rng)
		}
		pair.compare()
	}
}

type twins struct {
	t     *testing.T
	real  disk.FS
	fake  *FS
	files [][2]disk.File
}

var sentinels = []error{fs.ErrExist, fs.ErrNotExist, fs.ErrClosed, fs.ErrInvalid, io.EOF, disk.ErrLocked}

// same compares two results by the errors that a caller can distinguish.
func (p *twins) same(what string, a, b error) {
	p.t.Helper()
	if (a == nil) != (b == nil) {
		p.t.Fatalf("%s: real %v, fake %v", what, a, b)
	}
	for _, s := range sentinels {
		if errors.Is(a, s) != errors.Is(b, s) {
			p.t.Fatalf("%s: real %v, fake %v", what, a, b)
		}
	}
}

func (p *twins) step(rng *rand.Rand) {
	names := []string{"a", "b", "c", "d", "x/y"}
	name, other := names[rng.IntN(5)], names[rng.IntN(5)]
	switch rng.IntN(12) {
	case 0, 1:
		a, errA := p.real.Create(name)
		b, errB := p.fake.Create(name)
		p.opened("create", a, b, errA, errB)
	case 2:
		a, errA := p.real.Open(name)
		b, errB := p.fake.Open(name)
		p.opened("open", a, b, errA, errB)
	case 3:
		p.same("rename", p.real.Rename(name, other), p.fake.Rename(name, other))
	case 4:
		p.same("remove", p.real.Remove(name), p.fake.Remove(name))
	case 5:
		a, errA := p.real.Lock("l" + name)
		b, errB := p.fake.Lock("l" + name)
		p.same("lock", errA, errB)
		if errA == nil {
			p.same("unlock", a.Close(), b.Close())
		}
		p.same("sync dir", p.real.SyncDir(), p.fake.SyncDir())
		p.compare()
	default:
		if len(p.files) > 0 {
			p.fileStep(rng, p.files[rng.IntN(len(p.files))])
		}
	}
}

func (p *twins) opened(what string, a, b disk.File, errA, errB error) {
	p.t.Helper()
	p.same(what, errA, errB)
	if errA == nil {
		p.t.Cleanup(func() { a.Close() })
		p.files = append(p.files, [2]disk.File{a, b})
	}
}

func (p *twins) fileStep(rng *rand.Rand, f [2]disk.File) {
	off, size := rng.Int64N(10_000), rng.IntN(9000)
	switch rng.IntN(8) {
	case 0, 1, 2:
		data := random(rng, size)
		i := rng.IntN(size + 1)
		p.same("write", f[0].WriteAt(off, data[:i], nil, data[i:]), f[1].WriteAt(off, data[:i], nil, data[i:]))
	case 3:
		p.same("truncate", f[0].Truncate(off), f[1].Truncate(off))
	case 4:
		p.same("sync", f[0].SyncData(), f[1].SyncData())
	case 5:
		if rng.IntN(5) == 0 {
			p.same("close", f[0].Close(), f[1].Close())
		}
	default:
		a, b := make([]byte, size), make([]byte, size)
		n, errA := f[0].ReadAt(a, off)
		m, errB := f[1].ReadAt(b, off)
		p.same("read", errA, errB)
		if n != m || !bytes.Equal(a[:n], b[:m]) {
			p.t.Fatalf("read of %d at %d: real %d bytes, fake %d", size, off, n, m)
		}
		s, errA := f[0].Size()
		r, errB := f[1].Size()
		p.same("size", errA, errB)
		if errA == nil && s != r {
			p.t.Fatalf("size: real %d, fake %d", s, r)
		}
	}
}

// compare compares the whole directories.
func (p *twins) compare() {
	p.t.Helper()
	a, errA := p.real.List()
	b, errB := p.fake.List()
	p.same("list", errA, errB)
	if !slices.Equal(a, b) {
		p.t.Fatalf("list: real %q, fake %q", a, b)
	}
	files := p.fake.Files()
	var sum int64
	for name, data := range files {
		sum += int64(len(data))
		f, err := p.real.Open(name)
		if err != nil {
			p.t.Fatal(err)
		}
		got, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		if err != nil || !bytes.Equal(got, data) {
			p.t.Fatalf("%s: real %d bytes, fake %d, %v", name, len(got), len(data), err)
		}
		f.Close()
	}
	if p.fake.Size() != sum || len(files) != len(b) {
		p.t.Fatalf("size %d of %d files, want %d of %d", p.fake.Size(), len(files), sum, len(b))
	}
}

func TestLock(t *testing.T) {
	d := New()
	l, err := d.Lock("lock")
	check(t, err)
	if _, err := d.Lock("lock"); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("lock twice: %v", err)
	}
	l2, err := d.Crash(LoseNothing, nil).Lock("lock")
	check(t, err)
	check(t, l2.Close())
	check(t, l.Close())
	if err := l.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("release twice: %v", err)
	}
	l3, err := d.Lock("lock")
	check(t, err)
	check(t, l3.Close())
}

func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// createSynced creates a file with synced content and a synced name.
func createSynced(t *testing.T, d *FS, name, content string) disk.File {
	t.Helper()
	f, err := d.Create(name)
	check(t, err)
	check(t, f.WriteAt(0, []byte(content)))
	check(t, f.SyncData())
	check(t, d.SyncDir())
	return f
}

// holds compares the whole directory with want, which alternates names and contents.
func holds(t *testing.T, d *FS, want ...string) {
	t.Helper()
	files := map[string]string{}
	for i := 0; i < len(want); i += 2 {
		files[want[i]] = want[i+1]
	}
	if got := texts(d); !maps.Equal(got, files) {
		t.Fatalf("the directory holds %q, want %q", got, files)
	}
}

func texts(d *FS) map[string]string {
	got := map[string]string{}
	for name, b := range d.Files() {
		got[name] = string(b)
	}
	return got
}

// Zeros take no memory of their own. They replace what was written before, and a flipped bit of one
// file does not change the zeros of another.
func TestZeros(t *testing.T) {
	d := New()
	f, g := createSynced(t, d, "a", strings.Repeat("x", 3*pageSize)), createSynced(t, d, "b", "")
	check(t, f.WriteAt(10, make([]byte, 2*pageSize)))
	check(t, g.WriteAt(0, make([]byte, pageSize), make([]byte, 1)))
	d.Flip("b", 5, 0)
	check(t, g.WriteAt(pageSize+1, make([]byte, 9)))
	want := []string{"a", strings.Repeat("x", 10) + strings.Repeat("\x00", 2*pageSize) + strings.Repeat("x", pageSize-10), "b", "\x00\x00\x00\x00\x00\x01" + strings.Repeat("\x00", pageSize+4)}
	holds(t, d, want...)
	holds(t, d.Crash(LoseNothing, nil), want...)
	check(t, f.SyncData())
	check(t, g.SyncData())
	check(t, d.SyncDir())
	holds(t, d.Crash(LoseAll, nil), want...)
	if !isZero(zeros[:]) {
		t.Error("the shared zeros were changed")
	}
}
