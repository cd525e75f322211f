package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"weir/internal/disk"
	"weir/internal/engine/journal"
)

// stalls measures the first append to a fresh journal, and the longest appends to a full one.
// Writers append 1 KiB each, while the journal moves from one file to the next and streams of two
// million batches are deleted. In turns of a second, the writers pause, and a bare loop writes and
// syncs 1 KiB at a time, or what as many writers append to it. Its figures show what the disk and the
// other load on the machine contribute. The main figure is the 99.9th percentile of the appends,
// divided by the median of the syncs.
func stalls(dir string) ([]figure, error) {
	const (
		doomed, entries = 4, 2_000_000
		writers         = 4
	)
	dir, err := emptyDir(dir, "stalls")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var first []time.Duration
	for i := range 5 {
		took, err := firstAppend(dir, fmt.Sprint("fresh", i))
		if err != nil {
			return nil, err
		}
		first = append(first, took)
	}
	slices.Sort(first)
	if err := os.Mkdir(filepath.Join(dir, "full"), 0o755); err != nil {
		return nil, err
	}
	o, err := openJournal(disk.OS(filepath.Join(dir, "full")), journal.Options{}, 1+doomed)
	if err != nil {
		return nil, err
	}
	defer o.j.Close()
	for i := range doomed {
		filler := &journalContender{j: o.j, logs: o.logs[1+i : 2+i], judges: o.judges[1+i : 2+i]}
		if err := filler.fill(entries, 16, nil); err != nil {
			return nil, err
		}
	}
	disk, err := newBare(filepath.Join(dir, "bare"), 64<<20)
	if err != nil {
		return nil, err
	}
	defer disk.close()
	payload := make([]byte, 1<<10)
	syncing := []func() error{func() error { return disk.append(0, payload) }}
	appending := slices.Repeat([]func() error{func() error { return o.append(0, payload) }}, writers)
	grouped := slices.Repeat(syncing, writers)
	var appends, syncs, groups []time.Duration
	deleted := make(chan error, doomed)
	for i := range doomed + 1 {
		for range 3 {
			took, err := durations(slices.Clone(appending), time.Second)
			if err != nil {
				return nil, err
			}
			appends = append(appends, took...)
			if took, err = durations(slices.Clone(syncing), time.Second); err != nil {
				return nil, err
			}
			syncs = append(syncs, took...)
			if took, err = durations(slices.Clone(grouped), time.Second); err != nil {
				return nil, err
			}
			groups = append(groups, took...)
		}
		if i == doomed {
			break
		}
		time.AfterFunc(time.Second/2, func() { deleted <- o.j.Delete(context.Background(), fmt.Sprint(1+i), 0) })
	}
	for range doomed {
		if err := <-deleted; err != nil {
			return nil, err
		}
	}
	return append([]figure{{"first append to a fresh journal", ms(first[2]), "ms"}}, compared(appends, syncs, groups)...), nil
}

// compared compares appends with syncs of one bare append, and with appends to a bare loop.
func compared(appends, syncs, groups []time.Duration) []figure {
	for _, all := range [][]time.Duration{appends, syncs, groups} {
		slices.Sort(all)
	}
	at := func(d []time.Duration, q float64) float64 { return ms(d[int(q*float64(len(d)-1))]) }
	sync := at(syncs, 0.5)
	return []figure{
		{"1 KiB appends while streams of 2 million are deleted", float64(len(appends)), ""},
		{"  p99.9 / median of bare syncs", at(appends, 0.999) / sync, ""},
		{"  p99.9 / p99.9 of bare syncs", at(appends, 0.999) / at(syncs, 0.999), ""},
		{"  p99.9 / p99.9 of as many bare writers", at(appends, 0.999) / at(groups, 0.999), ""},
		{"  append p50", at(appends, 0.5), "ms"},
		{"  append p99", at(appends, 0.99), "ms"},
		{"  append p99.9", at(appends, 0.999), "ms"},
		{"  append, longest", at(appends, 1), "ms"},
		{"  bare sync p50", sync, "ms"},
		{"  bare sync p99.9", at(syncs, 0.999), "ms"},
		{"  bare sync, longest", at(syncs, 1), "ms"},
		{"  bare writers p50", at(groups, 0.5), "ms"},
		{"  bare writers p99.9", at(groups, 0.999), "ms"},
	}
}

// firstAppend measures the time from opening a fresh journal until its first append is acknowledged.
func firstAppend(dir, name string) (time.Duration, error) {
	dir, err := emptyDir(dir, name)
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	begin := time.Now()
	j, err := journal.Open(disk.OS(dir), journal.Options{})
	if err != nil {
		return 0, err
	}
	defer j.Close()
	o := &journalContender{j: j}
	if err := o.openStreams(1); err != nil {
		return 0, err
	}
	err = o.append(0, make([]byte, 1<<10))
	return time.Since(begin), err
}

// durations calls each worker in a loop for the given time, and returns how long each call took.
func durations(workers []func() error, span time.Duration) ([]time.Duration, error) {
	taken := make([][]time.Duration, len(workers))
	for i, do := range workers {
		workers[i] = func() error {
			begin := time.Now()
			err := do()
			taken[i] = append(taken[i], time.Since(begin))
			return err
		}
	}
	_, err := work(workers, 0, span, cpu)
	return slices.Concat(taken...), err
}
