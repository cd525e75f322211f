package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

// holdReads makes every read of a file system wait until the channel is closed, and counts the reads
// that wait.
func holdReads(fs *faulty.FS) (hold chan struct{}, reading *atomic.Int64) {
	hold, reading = make(chan struct{}), new(atomic.Int64)
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind == faulty.Read {
			reading.Add(1)
			<-hold
		}
		return nil
	})
	return hold, reading
}

// At most mostReads reads wait for a slow disk at the same time, however many clients read. Each of
// these reads occupies a thread. The other reads wait without a thread, until a read in progress
// finishes or until their own context ends.
func TestReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		j, _, l := openOne(t, fs, &counting{})
		defer j.Close()
		if err := l.Append(background, batchOf(1, "x")); err != nil {
			t.Fatal(err)
		}
		hold, reading := holdReads(fs)
		var all sync.WaitGroup
		var seen atomic.Int64
		for range 500 {
			all.Go(func() {
				if e, err := l.Read(background, 1); err == nil && string(e.Payload) == "x" {
					seen.Add(1)
				}
			})
			all.Go(func() {
				l.Scan(background, 1, 24<<10, func(e *engine.Entry) bool { seen.Add(1); return true })
			})
		}
		synctest.Wait()
		if n := reading.Load(); n != mostReads {
			t.Errorf("of the reads of 1,000 clients, %d wait for the disk, want %d", n, mostReads)
		}
		ctx, cancel := context.WithCancel(background)
		gone := make(chan error)
		go func() {
			_, err := l.Read(ctx, 1)
			gone <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("a client whose context was cancelled got %v", err)
		}
		close(hold)
		all.Wait()
		if n := seen.Load(); n != 1000 {
			t.Errorf("%d of 1,000 clients got the entry, want all", n)
		}
	})
}

// A scan reads about as many bytes at once as its caller asked for (a run). In this test, large
// entries of another log lie between the entries of the scanned log. A scan that did not take the
// run into account would read up to segments.LongRun at once.
func TestReadsAreAsLongAsTheRun(t *testing.T) {
	fs := faulty.New()
	j, err := Open(fs, Options{SegmentSize: 4 << 20, ReclaimRate: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var logs [2]engine.Log
	for i := range logs {
		d, err := j.Create(background, string(rune('a'+i)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if logs[i], err = j.Open(background, d.Created, &counting{}); err != nil {
			t.Fatal(err)
		}
	}
	for seq := range weir.Seq(300) { // 4 KiB of the other log lie between two entries of logs[0]
		for i, text := range []string{"x", strings.Repeat("y", 4<<10)} {
			if err := logs[i].Append(background, batchOf(seq+1, text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	longest := 0
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind == faulty.Read {
			longest = max(longest, c.Len)
		}
		return nil
	})
	seen := 0
	if err := logs[0].Scan(background, 1, 24<<10, func(*engine.Entry) bool { seen++; return true }); err != nil || seen != 300 {
		t.Fatal(seen, err)
	}
	if longest > segments.ShortRun {
		t.Errorf("a scan in runs of 24 KiB reads %d bytes at once, want at most segments.ShortRun", longest)
	}
}

// The size of a buffer depends on the length that the caller asks for: a short read does not get a
// large buffer.
func TestBuffers(t *testing.T) {
	for length, want := range map[int]int{1: segments.ShortRun, segments.ShortRun: segments.ShortRun, segments.ShortRun + 1: segments.LongRun, segments.LongRun + 1: segments.LongRun + 1} {
		b, done := segments.Buffer(length)
		if len(b) != length || cap(b) > max(want, length)*9/8 {
			t.Errorf("a buffer for %d bytes has length %d and capacity %d, want a capacity of about %d", length, len(b), cap(b), want)
		}
		done()
	}
}

// Opening a log reads from the disk what the index does not hold. As many such reads as client reads
// may wait for the disk at once, because each takes a thread.
func TestOpensAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		j, _, first := openOne(t, fs, &counting{})
		defer j.Close()
		logs := make([]engine.LogID, mostReads+100)
		for i := range logs {
			d, err := j.Create(background, fmt.Sprint("log ", i), nil)
			if err != nil {
				t.Fatal(err)
			}
			l, err := j.Open(background, d.Created, &counting{})
			if err == nil && i%2 == 0 {
				err = l.Append(background, &engine.Entry{Header: engine.Header{Kind: engine.Batch, Seq: 1, Key: "key"}, Payload: []byte("x")})
			} else if err == nil {
				err = l.Trim(background, 0, make([]byte, keptNote+1))
			}
			if err = errors.Join(err, l.Close()); err != nil {
				t.Fatal(err)
			}
			logs[i] = d.Created
		}
		first.Close()
		hold, reading := holdReads(fs)
		var all sync.WaitGroup
		for _, id := range logs {
			all.Go(func() {
				l, err := j.Open(background, id, &counting{})
				if err != nil {
					t.Error(err)
					return
				}
				l.Close()
			})
		}
		synctest.Wait()
		if n := reading.Load(); n != mostReads {
			t.Errorf("while %d logs are opened, %d reads wait for the disk, want %d", len(logs), n, mostReads)
		}
		close(hold)
		all.Wait()
	})
}
