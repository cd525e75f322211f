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

// fill appends batches from 512 concurrent writers, to all streams in turn. If onAppend is not nil,
// fill calls it after each append.
func (o *journalContender) fill(batches, size int, onAppend func(stream int, seq weir.Seq) error) error {
	var (
		wg      sync.WaitGroup
		left    atomic.Int64
		failure atomic.Pointer[error]
	)
	left.Store(int64(batches))
	for i := range 512 {
		wg.Go(func() {
			payload := make([]byte, size)
			if size > 0 {
				payload[0] = byte(i)
			}
			for failure.Load() == nil {
				n := left.Add(-1)
				if n < 0 {
					return
				}
				if o.payload != nil {
					payload = o.payload(int(n))
				}
				stream := int(n) % len(o.logs)
				err := o.append(stream, payload)
				if err == nil && onAppend != nil {
					err = onAppend(stream, weir.Seq(o.judges[stream].seq.Load()))
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

// openStreams opens the logs of n streams, and creates streams that do not exist.
func (o *journalContender) openStreams(n int) error {
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

func openJournal(fs disk.FS, options journal.Options, streams int) (*journalContender, error) {
	j, err := journal.Open(fs, options)
	if err != nil {
		return nil, err
	}
	o := &journalContender{j: j}
	err = o.openStreams(streams)
	for j.Ready() < 1 && err == nil { // the journal prepares its next file with a buffer, which must not be part of the measurement
		time.Sleep(10 * time.Millisecond)
	}
	return o, err
}

// emptyDir creates a subdirectory.
func emptyDir(dir, name string) (string, error) {
	dir = filepath.Join(dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// memoryPerBatch measures the heap per batch, for a million batches of 100 bytes. It subtracts the
// heap that the streams need while they are empty. The figure "while writing" also includes the
// index of the journal's current file. This index does not grow with the journal.
func memoryPerBatch(dir string) (figures []figure, err error) {
	const batches = 1_000_000
	for _, streams := range []int{1, 10_000} {
		dir, err := emptyDir(dir, fmt.Sprint("memory", streams))
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		before := heap()
		o, err := openJournal(disk.OS(dir), journal.Options{}, streams)
		if err != nil {
			return nil, err
		}
		empty := heap() - before // the cost of the streams themselves, to be subtracted
		if err := o.fill(batches, 100, nil); err != nil {
			return nil, err
		}
		running := heap() - before - empty
		if err := o.fill(65, 1<<20, nil); err != nil { // fills the current file, so that the journal continues in the next one
			return nil, err
		}
		if err := o.j.Close(); err != nil {
			return nil, err
		}
		o = nil
		before = heap()
		if o, err = openJournal(disk.OS(dir), journal.Options{}, streams); err != nil {
			return nil, err
		}
		started := heap() - before - empty
		figures = append(figures,
			figure{fmt.Sprintf("memory per batch, %d streams, after startup", streams), float64(started) / batches, "bytes"},
			figure{fmt.Sprintf("memory per batch, %d streams, while writing", streams), float64(running) / batches, "bytes"})
		if err := o.j.Close(); err != nil {
			return nil, err
		}
	}
	return figures, nil
}

// The environment variable fillEnv makes this program the child process of startAfterCrash. Its
// value names a directory, which the child process fills until it is killed.
const (
	fillEnv    = "WEIR_BENCH_FILL"
	crashBytes = 1 << 30
	crashSize  = 1 << 10
	crashLogs  = 100
)

// fillUntilKilled appends crashBytes, prints "full", and keeps appending.
func fillUntilKilled(dir string) error {
	o, err := openJournal(disk.OS(dir), journal.Options{}, crashLogs)
	if err != nil {
		return err
	}
	if err := o.fill(crashBytes/crashSize, crashSize, nil); err != nil {
		return err
	}
	fmt.Println("full")
	return o.fill(crashBytes/crashSize, crashSize, nil)
}

// startAfterCrash lets a child process fill a directory, kills the process while it appends, and
// measures how long it takes to open the directory.
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
	time.Sleep(100 * time.Millisecond) // so that the kill hits the child process in the middle of further appends
	child.Process.Kill()
	child.Wait()
	if line != "full\n" {
		return nil, fmt.Errorf("child process that fills the directory printed %q: %w", line, err)
	}
	begin := time.Now()
	j, err := journal.Open(disk.OS(dir), journal.Options{})
	if err != nil {
		return nil, err
	}
	opened := time.Since(begin)
	o := &journalContender{j: j}
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
		{"  opening its 100 streams", restored.Seconds(), "s"},
		{"  batches found", float64(kept), ""},
	}, nil
}
