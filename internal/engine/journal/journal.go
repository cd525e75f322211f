// Package journal is the embedded storage engine. It keeps all streams and documents of a data
// directory in one log, split into segment files. A single committer collects waiting operations
// into groups; each group is one write and one sync.
//
// DESIGN.md in this directory describes every byte on disk and numbers the steps of recovery.
package journal

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/shrink"
)

// Options configure a journal. The zero value is right for a server.
type Options struct {
	SegmentSize int64 // bytes; default 64 MiB. An existing journal keeps the size with which it was created
	ReclaimRate int64 // bytes per second that the reclaimer may copy; default 64 MiB

	QuickDisk time.Duration // Flush waits for a disk that writes and syncs in less than this time on average; default 300 µs

	Compress bool // compress the segments into which the reclaimer copies long-lived entries

	holdMore bool // for tests with little data: the reclaimer ignores the limit in mayHold, and so uses cold segments (see cold.go)

	ScrubRate  int64           // bytes per second that the scrub may read; 0 turns the scrub off
	ScrubEvery time.Duration   // time between the end of a scrub and the next; default 24 hours
	Damaged    func([]Finding) // called by the scrub for each damaged segment, if set
}

const (
	defaultSegment = 64 << 20
	defaultRate    = 64 << 20

	// idle is the time after the last append until the writer records in the file "end" how far the
	// log is synced. Under load, it is the time between two such records.
	idle = 100 * time.Millisecond
	// retry is the time between two attempts to prepare a segment or to write on a full disk.
	retry = 250 * time.Millisecond
)

// Journal is an open journal. It implements engine.Engine. All methods may be called from many
// goroutines at once.
type Journal struct {
	dir  directory.Directory
	opts Options

	entriesLeftOut bool // recovery did not read the entries into memory; see drop.go

	queue    queue
	store    store
	prepare  preparer
	reclaim  reclaimer
	commit   committer
	write    writer
	announce announcer
	scrub    scrubber
	counts   counters
	waiters  waiters                // the channels on which callers wait for outcomes, for reuse
	slots    atomic.Pointer[[]byte] // index buffer of the segment sealed last, for reuse

	failure atomic.Pointer[error] // set at most once; the journal is read-only from then on
	stalled atomic.Pointer[error] // why the writer is waiting for space; nil if it is not waiting
	reads   reads                 // client reads in progress
	closing atomic.Bool
	halt    chan struct{} // closed when Close begins
	closed  chan struct{}
	work    sync.WaitGroup
}

var _ engine.Engine = (*Journal)(nil)

// Open opens the journal in a directory. An empty directory becomes a new journal. Open recovers
// from any crash by itself (DESIGN.md, "Opening").
//
// It returns disk.ErrLocked, ErrForeign, ErrNewer, engine.ErrDamaged (a *DamageError with file and
// offset), or an error of the file system. After any error the data in the directory is unchanged.
func Open(fs disk.FS, o Options) (*Journal, error) {
	j := newJournal(fs, o)
	if err := directory.CheckSize(j.dir.Size); err != nil {
		return nil, err
	}
	if err := j.recover(); err != nil {
		j.closeAll()
		return nil, err
	}
	j.serve()
	j.start(j.reclaim.run)
	j.reclaim.signal.wake()
	if o.ScrubRate > 0 {
		j.start(j.scrub.run)
	}
	return j, nil
}

// serve starts all goroutines except the reclaimer and the scrub.
func (j *Journal) serve() {
	j.commit.reserve = min(256<<10, j.dir.Size/16)
	j.commit.begin()
	j.write.idling = time.NewTimer(idle)
	j.start(j.commit.run)
	j.start(j.write.run)
	j.start(j.write.tell)
	j.start(j.announce.run)
	j.start(j.prepare.run)
}

// newJournal returns a journal that has not read anything yet.
func newJournal(fs disk.FS, o Options) *Journal {
	o.SegmentSize, o.ReclaimRate, o.QuickDisk = cmp.Or(o.SegmentSize, defaultSegment), cmp.Or(o.ReclaimRate, defaultRate), cmp.Or(o.QuickDisk, quick)
	o.ScrubEvery = cmp.Or(o.ScrubEvery, 24*time.Hour)
	j := &Journal{dir: directory.Directory{FS: fs, Size: o.SegmentSize, Compress: o.Compress}, opts: o, halt: make(chan struct{}), closed: make(chan struct{}), reads: make(reads, mostReads)}
	j.queue.init()
	j.store.init()
	j.prepare.init(j)
	j.reclaim.init(j)
	j.commit.init(j)
	j.write.init(j)
	j.announce.init()
	j.scrub.init(j)
	return j
}

func (j *Journal) start(run func()) {
	j.work.Add(1)
	go func() {
		defer j.work.Done()
		run()
	}()
}

// Close implements engine.Engine.
func (j *Journal) Close() error {
	if !j.closing.CompareAndSwap(false, true) {
		<-j.closed
		return nil
	}
	close(j.halt)
	// The order matters. The committer still processes the queued ops and may need a new segment
	// for them, so the preparer must run until the writer has ended. The announcer hands the
	// entries of deleted logs to the reclaimer, so the reclaimer stops after the announcer.
	j.queue.close()
	<-j.announce.done
	j.reclaim.stop()
	j.prepare.stop()
	j.work.Wait()
	j.closeAll()
	close(j.closed)
	return nil
}

// closeAll closes all files and releases the lock.
func (j *Journal) closeAll() {
	for _, s := range j.store.allSegments() {
		s.File.Close()
	}
	j.prepare.closeFiles()
	j.dir.Close()
}

// Status implements engine.Engine.
func (j *Journal) Status() engine.Status {
	switch {
	case j.failed() != nil:
		return engine.Status{State: engine.ReadOnly, Reason: j.failed()}
	case j.closing.Load():
		return engine.Status{State: engine.Closed, Reason: engine.ErrClosed}
	}
	err := j.prepare.shortage()
	if p := j.stalled.Load(); p != nil {
		err = *p
	}
	if err != nil {
		return engine.Status{State: engine.Full, Reason: err}
	}
	return engine.Status{}
}

// fail makes the journal read-only and returns the error that all later writes get. A failed sync
// is never retried: the kernel may have dropped the dirty pages, so a second sync could succeed
// without having written them. A failed write is retried only if the reason was a lack of space
// (writer.put).
func (j *Journal) fail(err error) error {
	err = fmt.Errorf("%w: %w", engine.ErrReadOnly, err)
	j.failure.CompareAndSwap(nil, &err)
	return j.failed()
}

func (j *Journal) failed() error {
	if p := j.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// refusing returns why the journal refuses ops that write, or nil if it accepts them.
func (j *Journal) refusing() error {
	if err := j.failed(); err != nil {
		return err
	}
	if p := j.stalled.Load(); p != nil {
		return *p
	}
	return nil
}

// pause waits for d. It returns false if the channel halt is closed first.
func pause(d time.Duration, halt <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-halt:
		return false
	}
}

// spareSlots returns an empty index buffer for the next segment. It reuses the buffer of the
// segment that was sealed last, if that buffer is free. The parameter used is the length of the
// index of the segment that is full now. A buffer that is much larger is not reused, so that the
// memory for many small records is freed when large ones follow.
func (j *Journal) spareSlots(used int) []byte {
	b := j.slots.Swap(nil)
	if b == nil {
		return nil
	}
	return shrink.Slice((*b)[:min(used, cap(*b))])[:0]
}
