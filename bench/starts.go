package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

// starts measure how long a server takes to become ready: after a crash, with many streams, with
// many trims, and with a long history.
var starts = []func(string) ([]figure, error){startAfterCrash, startManyStreams, startAfterTrims, startLongHistory}

// inTurn calls the function do once for each number from 0 to n-1, from several goroutines.
func inTurn(goroutines, n int, do func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	var failure atomic.Pointer[error]
	for range goroutines {
		wg.Go(func() {
			for failure.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					failure.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if p := failure.Load(); p != nil {
		return *p
	}
	return nil
}

func openHub(j *journal.Journal) (*hub.Hub, error) {
	return hub.Open(context.Background(), j, hub.Options{
		StreamsPerProject: 1 << 30, Frame: func(b []byte, _ weir.Mode, _ *weir.Batch) []byte { return b },
	})
}

// startManyStreams creates 100,000 streams and publishes a batch to each. It then measures how long
// it takes to open the journal and the hub, and the heap that they take per stream.
func startManyStreams(dir string) ([]figure, error) {
	const streams = 100_000
	dir, err := emptyDir(dir, "streams")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	j, err := journal.Open(disk.OS(dir), journal.Options{})
	if err != nil {
		return nil, err
	}
	h, err := openHub(j)
	if err != nil {
		return nil, err
	}
	err = inTurn(256, streams, func(i int) error {
		o, err := h.Create(ctx, hub.Spec{Project: "bench", Name: fmt.Sprint("stream ", i), RetentionSeconds: 86400, MaxBytes: 1 << 20, Mode: weir.JSON})
		if err != nil {
			return err
		}
		s, err := h.Stream(o.ID)
		if err != nil {
			return err
		}
		_, err = s.Publish(ctx, &hub.Publish{Batch: weir.Batch{Events: 1, Payload: []byte(`["hello"]`)}})
		return err
	})
	h.Close()
	j.Close()
	if err != nil {
		return nil, err
	}
	h, j = nil, nil
	before, begin := heap(), time.Now()
	if j, err = journal.Open(disk.OS(dir), journal.Options{}); err != nil {
		return nil, err
	}
	defer j.Close()
	if h, err = openHub(j); err != nil {
		return nil, err
	}
	defer h.Close()
	took := time.Since(begin)
	return []figure{
		{"start with 100,000 streams of one batch", took.Seconds(), "s"},
		{"  heap per stream", float64(heap()-before) / streams, "bytes"},
	}, nil
}

// startAfterTrims fills ten segments (files of the journal) from 64 streams. It trims each stream
// after every 256 batches. Each trim writes a record, so that such records are scattered over all
// segments. A start always reads two segments whole: the tail, which was written last, and the
// segment that is prepared for later use. startAfterTrims measures how much a start reads beyond
// these two.
func startAfterTrims(dir string) ([]figure, error) {
	const streams, size, segment = 64, 1 << 10, 64 << 20
	dir, err := emptyDir(dir, "trims")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o, err := openJournal(disk.OS(dir), journal.Options{SegmentSize: segment}, streams)
	if err != nil {
		return nil, err
	}
	note := bytes.Repeat([]byte("n"), 40)
	trims := atomic.Int64{}
	err = o.fill(10*segment/(size+88), size, func(stream int, seq weir.Seq) error {
		if seq%256 > 0 {
			return nil
		}
		trims.Add(1)
		return o.logs[stream].Trim(context.Background(), 1, note)
	})
	if err != nil {
		return nil, err
	}
	if err := o.j.Close(); err != nil {
		return nil, err
	}
	fs := &counted{FS: disk.OS(dir)}
	begin := time.Now()
	j, err := journal.Open(fs, journal.Options{})
	if err != nil {
		return nil, err
	}
	took, read := time.Since(begin), fs.read.Load()
	j.Close()
	return []figure{
		{fmt.Sprintf("start with ten segments and %d trims", trims.Load()), took.Seconds(), "s"},
		{"  read beyond the tail and the prepared segment", float64(read-2*segment) / (1 << 20), "MiB"},
	}, nil
}

// sparse is a file system whose files have holes where zeros were written. It syncs nothing, so that
// a long history can be made quickly.
type sparse struct{ disk.FS }

type sparseFile struct{ disk.File }

func (s sparse) Create(name string) (disk.File, error) {
	f, err := s.FS.Create(name)
	return sparseFile{f}, err
}

func (s sparse) Open(name string) (disk.File, error) {
	f, err := s.FS.Open(name)
	return sparseFile{f}, err
}

func (sparseFile) SyncData() error { return nil }

const page = 4 << 10

var zeros [page]byte

func (f sparseFile) WriteAt(off int64, bufs ...[]byte) error {
	all := bytes.Join(bufs, nil)
	size, err := f.Size()
	if end := off + int64(len(all)); err == nil && size < end {
		err = f.Truncate(end)
	}
	for from := 0; from < len(all) && err == nil; {
		to := min(len(all), from+page-int((off+int64(from))%page))
		for to < len(all) && !isZero(all[from:to]) && !isZero(all[to:min(len(all), to+page)]) {
			to = min(len(all), to+page)
		}
		if b := all[from:to]; !isZero(b) {
			err = f.File.WriteAt(off+int64(from), b)
		}
		from = to
	}
	return err
}

func isZero(b []byte) bool { return len(b) == page && bytes.Equal(b, zeros[:]) }

// startLongHistory measures a start with a cold cache on a growing journal: 10 KiB per batch, in 100
// streams, with payloads that take no space on the disk. The last figure extrapolates to 10 million
// batches.
func startLongHistory(dir string) (figures []figure, err error) {
	const size, streams, perGiB = 10 << 10, 100, 1 << 30 / (10<<10 + 88)
	dir, err = emptyDir(dir, "history")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	stored := 0
	var sizes, times []float64
	for _, gib := range []int{1, 10, 30} {
		o, err := openJournal(sparse{disk.OS(dir)}, journal.Options{}, streams)
		if err != nil {
			return figures, err
		}
		if err := o.fill(gib*perGiB-stored, size, nil); err != nil {
			return figures, err
		}
		stored = gib * perGiB
		if err := o.j.Close(); err != nil {
			return figures, err
		}
		if err := forgetFiles(dir); err != nil {
			return figures, err
		}
		o = nil
		before, begin := heap(), time.Now()
		j, err := journal.Open(disk.OS(dir), journal.Options{})
		if err != nil {
			return figures, err
		}
		took := time.Since(begin).Seconds()
		sizes, times = append(sizes, float64(stored)), append(times, took)
		figures = append(figures, figure{fmt.Sprintf("start with %d GiB of 10 KiB batches, cold cache", gib), took, "s"},
			figure{"  heap per batch", float64(heap()-before) / float64(stored), "bytes"})
		j.Close()
	}
	last := len(sizes) - 1
	slope := (times[last] - times[1]) / (sizes[last] - sizes[1])
	return append(figures, figure{"  extrapolated to 10 million batches in 100 GiB", times[last] + slope*(1e7-sizes[last]), "s"}), nil
}

// forgetFiles removes the files of a directory from the page cache.
func forgetFiles(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	const dontNeed = 4
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		syscall.Syscall(syscall.SYS_FDATASYNC, f.Fd(), 0, 0)
		_, _, code := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0)
		f.Close()
		if code != 0 {
			return fmt.Errorf("forget %s: %w", name, code)
		}
	}
	return nil
}
