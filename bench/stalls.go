package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/disk"
	"weir/internal/engine/journal"
)

// clocked is a file system that measures the syncs of its files.
type clocked struct {
	disk.FS
	mu    sync.Mutex
	taken []time.Duration
	on    atomic.Bool
}

type clockedFile struct {
	disk.File
	fs *clocked
}

func (t *clocked) Create(name string) (disk.File, error) {
	f, err := t.FS.Create(name)
	return &clockedFile{f, t}, err
}

func (t *clocked) Open(name string) (disk.File, error) {
	f, err := t.FS.Open(name)
	return &clockedFile{f, t}, err
}

func (f *clockedFile) SyncData() error {
	begin := time.Now()
	err := f.File.SyncData()
	if f.fs.on.Load() {
		f.fs.mu.Lock()
		f.fs.taken = append(f.fs.taken, time.Since(begin))
		f.fs.mu.Unlock()
	}
	return err
}

// stalls measures the longest appends: 16 writers append 1 KiB each while the journal moves from
// segment to segment and streams of two million batches are deleted, one per second. The measure is
// the 99.9th percentile of the appends, divided by the median of the syncs in the same time. It also
// measures the first append to a fresh journal.
func stalls(dir string) ([]figure, error) {
	const (
		doomed, entries = 3, 2_000_000
		writers         = 16
	)
	dir, err := emptyDir(dir, "stalls")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fs := &clocked{FS: disk.OS(dir)}
	begin := time.Now()
	o, err := openJournal(fs, journal.Options{}, 1+doomed)
	if err != nil {
		return nil, err
	}
	defer func() { o.j.Close() }()
	for i := range doomed {
		filler := &journalContender{j: o.j, logs: o.logs[1+i : 2+i], judges: o.judges[1+i : 2+i]}
		if err := filler.fill(entries, 16, nil); err != nil {
			return nil, err
		}
	}
	segments := o.j.Stats().Used
	deleted := make(chan error, 1)
	fs.on.Store(true)
	var each []func() error
	var taken [writers][]time.Duration
	payload := make([]byte, 1<<10)
	for i := range writers {
		each = append(each, func() error {
			begin := time.Now()
			err := o.append(0, payload)
			taken[i] = append(taken[i], time.Since(begin))
			return err
		})
	}
	go func() {
		for i := range doomed {
			time.Sleep(time.Second)
			if err := o.j.Delete(context.Background(), fmt.Sprint(1+i), 0); err != nil {
				deleted <- err
				return
			}
		}
		deleted <- nil
	}()
	_, err = work(each, len(payload), 10*time.Second, cpu)
	fs.on.Store(false)
	if err == nil {
		err = <-deleted
	}
	if err != nil {
		return nil, err
	}
	all := slices.Concat(taken[:]...)
	slices.Sort(all)
	slices.Sort(fs.taken)
	at := func(d []time.Duration, q float64) float64 { return float64(d[int(q*float64(len(d)-1))]) / 1e6 }
	sync := at(fs.taken, 0.5)
	_, _ = begin, segments
	return []figure{
		{"1 KiB appends, 16 writers, while 2-million-batch streams go: p99.9 / median sync", at(all, 0.999) / sync, ""},
		{"  median sync", sync, "ms"},
		{"  append p50", at(all, 0.5), "ms"},
		{"  append p99", at(all, 0.99), "ms"},
		{"  append p99.9", at(all, 0.999), "ms"},
		{"  longest append", at(all, 1), "ms"},
		{"  appends", float64(len(all)) / 10, "1/s"},
	}, nil
}
