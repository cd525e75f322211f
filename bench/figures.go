package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
)

// fill appends so many batches in turns to all streams, from many writers. After each one it calls after, if that is set.
func (o *ours) fill(batches, size int, after func(stream int, seq weir.Seq) error) error {
	var (
		wg      sync.WaitGroup
		left    atomic.Int64
		failure atomic.Pointer[error]
	)
	left.Store(int64(batches))
	for i := range 512 {
		wg.Go(func() {
			payload := make([]byte, size)
			payload[0] = byte(i)
			for failure.Load() == nil {
				n := left.Add(-1)
				if n < 0 {
					return
				}
				stream := int(n) % len(o.logs)
				err := o.append(stream, payload)
				if err == nil && after != nil {
					err = after(stream, weir.Seq(o.judges[stream].seq.Load()))
				}
				if err != nil {
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

// openStreams opens the log of each stream of a journal, made if missing.
func (o *ours) openStreams(n int) error {
	ctx := context.Background()
	o.logs, o.judges = make([]engine.Log, n), make([]*numbers, n)
	for i := range n {
		d, err := o.j.Create(ctx, fmt.Sprint(i), nil)
		if errors.Is(err, engine.ErrExists) {
			d, err = o.j.Get(ctx, fmt.Sprint(i))
		}
		if err != nil {
			return err
		}
		o.judges[i] = &numbers{}
		if o.logs[i], err = o.j.Open(ctx, d.Created, o.judges[i]); err != nil {
			return err
		}
	}
	return nil
}

func openOurs(fs disk.FS, options journal.Options, streams int) (*ours, error) {
	j, err := journal.Open(fs, options)
	if err != nil {
		return nil, err
	}
	o := &ours{j: j}
	err = o.openStreams(streams)
	for j.Ready() < 1 && err == nil { // preparing has a buffer of its own
		time.Sleep(10 * time.Millisecond)
	}
	return o, err
}

func emptyDir(dir, name string) (string, error) {
	dir = filepath.Join(dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// memoryPerBatch weighs a million batches of 100 bytes: how much more the heap holds than with as many empty streams.
// While writing that includes what does not grow with the journal: the index of the segment that is being written.
func memoryPerBatch(dir string) (figures []figure, err error) {
	const batches = 1_000_000
	for _, streams := range []int{1, 10_000} {
		dir, err := emptyDir(dir, fmt.Sprint("memory", streams))
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		before := heap()
		o, err := openOurs(disk.OS(dir), journal.Options{}, streams)
		if err != nil {
			return nil, err
		}
		empty := heap() - before // what an idle stream costs is not what a batch costs
		if err := o.fill(batches, 100, nil); err != nil {
			return nil, err
		}
		running := heap() - before - empty
		if err := o.fill(65, 1<<20, nil); err != nil { // on to the next segment
			return nil, err
		}
		if err := o.j.Close(); err != nil {
			return nil, err
		}
		o = nil
		before = heap()
		if o, err = openOurs(disk.OS(dir), journal.Options{}, streams); err != nil {
			return nil, err
		}
		started := heap() - before - empty
		figures = append(figures,
			figure{fmt.Sprintf("memory per batch, %d streams, after a start", streams), float64(started) / batches, "bytes"},
			figure{fmt.Sprintf("memory per batch, %d streams, while writing", streams), float64(running) / batches, "bytes"})
		if err := o.j.Close(); err != nil {
			return nil, err
		}
	}
	return figures, nil
}

// fillEnv makes the program the child of startAfterCrash: it fills this directory and waits to be killed.
const (
	fillEnv    = "WEIR_BENCH_FILL"
	crashBytes = 1 << 30
	crashSize  = 1 << 10
	crashLogs  = 100
)

// fillUntilKilled appends until the directory is full enough, says so, and goes on appending.
func fillUntilKilled(dir string) error {
	o, err := openOurs(disk.OS(dir), journal.Options{}, crashLogs)
	if err != nil {
		return err
	}
	if err := o.fill(crashBytes/crashSize, crashSize, nil); err != nil {
		return err
	}
	fmt.Println("full")
	return o.fill(crashBytes/crashSize, crashSize, nil)
}

// startAfterCrash fills a directory from another process, kills that while it appends, and opens what it left.
func startAfterCrash(dir string) ([]figure, error) {
	dir, err := emptyDir(dir, "crash")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self)
	child.Env, child.Stderr = append(os.Environ(), fillEnv+"="+dir), os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	time.Sleep(100 * time.Millisecond) // in the midst of more
	child.Process.Kill()
	child.Wait()
	if line != "full\n" {
		return nil, fmt.Errorf("the child that fills the directory said %q: %w", line, err)
	}
	begin := time.Now()
	j, err := journal.Open(disk.OS(dir), journal.Options{})
	if err != nil {
		return nil, err
	}
	opened := time.Since(begin)
	o := &ours{j: j}
	defer j.Close()
	begin = time.Now()
	if err := o.openStreams(crashLogs); err != nil {
		return nil, err
	}
	restored := time.Since(begin)
	kept := uint64(0)
	for _, judge := range o.judges {
		kept += judge.seq.Load()
	}
	return []figure{
		{"start after a crash, 1 GiB of 1 KiB batches", opened.Seconds(), "s"},
		{"  and restoring its 100 streams", restored.Seconds(), "s"},
		{"  batches found", float64(kept), ""},
	}, nil
}
