package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine/journal"
)

// counted is a file system that counts the bytes that are read from its files and written to them.
type counted struct {
	disk.FS
	read, written atomic.Int64
}

type countedFile struct {
	disk.File
	fs *counted
}

func (c *counted) Create(name string) (disk.File, error) {
	f, err := c.FS.Create(name)
	return &countedFile{f, c}, err
}

func (c *counted) Open(name string) (disk.File, error) {
	f, err := c.FS.Open(name)
	return &countedFile{f, c}, err
}

func (f *countedFile) WriteAt(off int64, bufs ...[]byte) error {
	for _, b := range bufs {
		f.fs.written.Add(int64(len(b)))
	}
	return f.File.WriteAt(off, bufs...)
}

func (f *countedFile) ReadAt(b []byte, off int64) (int, error) {
	f.fs.read.Add(int64(len(b)))
	return f.File.ReadAt(b, off)
}

// reclaiming appends 512 MiB to 64 streams. Every eighth stream keeps 4,000 batches, and each other
// stream keeps 200. A segment is a file of the journal. Most batches of a segment are soon evicted,
// and the journal must copy the remaining batches to free the segment. The result shows how much
// the journal wrote, and how much disk space it uses under load and after reclaiming has finished.
func reclaiming(dir string) ([]figure, error) {
	const (
		streams, size = 64, 1 << 10
		segment       = 16 << 20
		batches       = 512 << 20 / size
	)
	dir, err := emptyDir(dir, "reclaim")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fs := &counted{FS: disk.OS(dir)}
	o, err := openJournal(fs, journal.Options{SegmentSize: segment}, streams)
	if err != nil {
		return nil, err
	}
	defer o.j.Close()
	err = o.fill(batches, size, func(stream int, seq weir.Seq) error {
		kept := weir.Seq(200)
		if stream%8 == 0 {
			kept = 4000
		}
		if seq%100 > 0 || seq <= kept {
			return nil
		}
		return o.logs[stream].Trim(context.Background(), seq-kept, nil)
	})
	if err != nil {
		return nil, err
	}
	loaded := o.j.Stats()
	rest, took := atRest(o.j)
	appended := float64(batches * size)
	steady, err := reclaimingSteadily(dir)
	if err != nil {
		return nil, err
	}
	return []figure{
		steady,
		{"written / appended under load, copies by reclaiming", float64(loaded.Bytes) / float64(loaded.Bytes-loaded.Copied), ""},
		{"written / appended at rest, copies by reclaiming", float64(rest.Bytes) / float64(rest.Bytes-rest.Copied), ""},
		{"written / payload, all writes including preparation", float64(fs.written.Load()) / appended, ""},
		{"disk beyond live bytes under load", float64(loaded.Disk-loaded.Live) / segment, "segments"},
		{"disk beyond live bytes at rest", float64(rest.Disk-rest.Live) / segment, "segments"},
		{fmt.Sprintf("  time to come to rest, with %d MiB live", rest.Live>>20), took.Seconds(), "s"},
	}, nil
}

// reclaimingSteadily appends 256 MiB to 64 streams at about 25 MiB/s, a rate with which reclaiming
// keeps up. Every eighth stream keeps 1,500 batches, and each other stream keeps 50. The live data
// takes about 60 segments. The result shows how much the journal writes in the long run. This
// depends on how often it copies a batch that is kept.
func reclaimingSteadily(dir string) (figure, error) {
	dir, err := emptyDir(dir, "steady")
	if err != nil {
		return figure{}, err
	}
	defer os.RemoveAll(dir)
	o, err := openJournal(disk.OS(dir), journal.Options{SegmentSize: 256 << 10}, 64)
	if err != nil {
		return figure{}, err
	}
	defer o.j.Close()
	err = o.fill(256<<10, 1<<10, func(stream int, seq weir.Seq) error {
		time.Sleep(20 * time.Millisecond)
		kept := weir.Seq(50)
		if stream%8 == 0 {
			kept = 1500
		}
		if seq%25 > 0 || seq <= kept {
			return nil
		}
		return o.logs[stream].Trim(context.Background(), seq-kept, nil)
	})
	s := o.j.Stats()
	return figure{"written / appended at a steady rate, copies by reclaiming", float64(s.Bytes) / float64(s.Bytes-s.Copied), ""}, err
}

// atRest waits until the journal has neither written nor freed anything for three seconds. It
// returns the journal's figures, and the time from the call to the last change.
func atRest(j *journal.Journal) (journal.Stats, time.Duration) {
	begin := time.Now()
	last, changed := j.Stats(), time.Now()
	for time.Since(changed) < 3*time.Second {
		time.Sleep(50 * time.Millisecond)
		if s := j.Stats(); s.Bytes != last.Bytes || s.Disk != last.Disk {
			last, changed = s, time.Now()
		}
	}
	return last, changed.Sub(begin)
}
