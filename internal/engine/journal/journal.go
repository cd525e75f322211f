// Package journal is the embedded engine: one log for all streams and documents of a data directory, cut into
// segments, written by one committer that syncs whatever is waiting as one group. DESIGN.md beside it draws every byte
// and numbers the steps of recovery.
package journal

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weir/internal/disk"
	"weir/internal/engine"
)

// Options are what may differ between journals. The zero value is right for a server.
type Options struct {
	SegmentSize int64 // bytes; 64 MiB. Fixed when the directory is made
	Ahead       int   // segments kept ready beyond the active one; 1
	ReclaimRate int64 // bytes a second that reclaiming may copy; 64 MiB
}

const (
	defaultSegment = 64 << 20
	minSegment     = 64 << 10 // tests only: a server's segment holds its largest batch several times over
	maxSegment     = 1 << 31  // offsets are 32 bits
	defaultRate    = 64 << 20

	// idle is how long after the last append the watermark is written.
	idle = 100 * time.Millisecond
	// retry is how long a full disk is left alone before the next attempt to prepare a segment.
	retry = 250 * time.Millisecond
)

// Journal is an open journal. It implements engine.Engine.
type Journal struct {
	fs   disk.FS
	lock io.Closer
	size int64 // of a segment
	salt [8]byte
	opts Options

	queue   queue
	store   store
	prepare preparer
	reclaim reclaimer
	commit  committer
	write   writer
	counts  counters
	appends sync.Pool              // of *appendOp
	slots   atomic.Pointer[[]byte] // of the segment sealed last, to be used again

	failure atomic.Pointer[error] // set once: the journal is read-only for good
	closing atomic.Bool
	closed  chan struct{}
	work    sync.WaitGroup
}

var _ engine.Engine = (*Journal)(nil)

// Open opens the journal in a directory, which it makes one when the directory is empty. Whatever a crash left is put
// in order without help; see DESIGN.md. Errors: disk.ErrLocked, ErrForeign, ErrNewer, engine.ErrDamaged (a
// *DamageError that says where), or that of the file system; after any of them the directory is as it was.
func Open(fs disk.FS, o Options) (*Journal, error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = defaultSegment
	}
	if o.SegmentSize < minSegment || o.SegmentSize > maxSegment || o.SegmentSize%dataStart != 0 {
		return nil, fmt.Errorf("segment size %d: not a multiple of %d between %d and %d", o.SegmentSize, dataStart, minSegment, int64(maxSegment))
	}
	if o.Ahead == 0 {
		o.Ahead = 1
	}
	if o.ReclaimRate == 0 {
		o.ReclaimRate = defaultRate
	}
	j := newJournal(fs, o)
	if err := j.recover(); err != nil {
		j.giveUp()
		return nil, err
	}
	j.start(j.commit.run)
	j.start(j.write.run)
	j.start(j.write.tell)
	j.start(j.prepare.run)
	j.start(j.reclaim.run)
	j.reclaim.wake()
	return j, nil
}

// newJournal is a journal of which nothing was read yet.
func newJournal(fs disk.FS, o Options) *Journal {
	j := &Journal{fs: fs, size: o.SegmentSize, opts: o, closed: make(chan struct{})}
	j.appends.New = func() any { return &appendOp{done: make(chan error, 1)} }
	j.queue.init()
	j.store.init()
	j.prepare.init(j)
	j.reclaim.init(j)
	j.commit.init(j)
	j.write.init(j)
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
	j.queue.close() // the committer finishes what is queued, and may need a segment for it
	<-j.write.done
	j.reclaim.stop()
	j.prepare.stop()
	j.work.Wait()
	j.giveUp()
	close(j.closed)
	return nil
}

// giveUp closes the files and the lock.
func (j *Journal) giveUp() {
	for _, s := range j.store.allSegments() {
		s.file.Close()
	}
	j.prepare.closeFiles()
	if j.lock != nil {
		j.lock.Close()
	}
}

// Status implements engine.Engine.
func (j *Journal) Status() engine.Status {
	switch {
	case j.failed() != nil:
		return engine.Status{State: engine.ReadOnly, Reason: j.failed()}
	case j.closing.Load():
		return engine.Status{State: engine.Closed, Reason: engine.ErrClosed}
	}
	if err := j.prepare.shortage(); err != nil {
		return engine.Status{State: engine.Full, Reason: err}
	}
	return engine.Status{}
}

// fail makes the journal read-only. A failed write or sync is never tried again: the kernel may have dropped the pages
// and would answer a second sync with a lie.
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

// isShortage tells faults that pass (no space, no file handles) from those that do not.
func isShortage(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EFBIG} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// spareSlots is room for the index of a segment.
func (j *Journal) spareSlots() []byte {
	if b := j.slots.Swap(nil); b != nil {
		return (*b)[:0]
	}
	return nil
}
