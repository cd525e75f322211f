package journal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/blocks"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/segments"
)

// preparer is the goroutine that makes segments ready before they are needed. A ready segment has
// its full size, its header and a durable name, and its space is reserved. So switching to a ready
// segment costs nothing. The preparer then fills the segment with zeros, because a sync is much
// faster on blocks that were written before. The segment can be used before it is filled.
type preparer struct {
	j *Journal

	mu      sync.Mutex
	change  *sync.Cond
	ready   []*segment  // ready segments in the order of their numbers
	blank   []*segment  // segments that are not filled with zeros yet, in the order of their numbers
	dead    []*segment  // freed segments, to be recycled or removed
	packed  []*segment  // freed segments that are compressed, to be removed
	leaving *segment    // the segment whose file is being removed, one part after the other; nil if there is none
	left    int64       // size of what is left of that file
	rested  time.Time   // time at which the next part may be removed
	spare   int         // lowest number of dead segments to keep for recycling; 0 if the journal is idle
	taken   []time.Time // times at which segments were taken during the last horizon
	number  uint64      // number of the next segment to prepare
	short   error       // why the last attempt to prepare a segment found no space; nil if it succeeded
	refused bool        // an op was refused because no segment could be prepared
	tight   atomic.Bool // no segment is ready, and there is no space for another one
	stopped bool
	closed  bool
	halt    chan struct{}
}

// ahead is the number of segments kept ready beyond the active one.
const ahead = 1

// horizon is a length of time. Under load, as many dead segments are kept for recycling as segments
// were taken during this time.
const horizon = 10 * time.Second

// removalShare limits the time for which removing files stalls the disk, and mostRest how long
// removeDead rests for that reason.
const (
	removalShare = 500
	mostRest     = time.Minute
)

// temporary is the file name of a segment until it is ready.
const temporary = "segment.tmp"

func (p *preparer) init(j *Journal) {
	p.j, p.number = j, 1
	p.change = sync.NewCond(&p.mu)
	p.halt = make(chan struct{})
}

// run keeps the wanted number of segments ready, fills them with zeros, and removes dead files that
// are not needed. If there is no space, run tries again later. If a file cannot be written, run
// tries another file. Any other error makes the journal read-only.
func (p *preparer) run() {
	spoilt := 0 // number of files in a row that could not be written
	for p.wait() {
		err := p.step()
		switch {
		case err == nil:
			if len(p.blank) == 0 {
				spoilt = 0
			}
		case errors.Is(err, engine.ErrClosed):
			return
		case errors.As(err, new(spoiltFile)) && !disk.IsShortage(err) && spoilt < mostSpoilt:
			spoilt++ // another file may be on better blocks of the disk
		case disk.IsShortage(err), errors.As(err, new(spoiltFile)):
			p.setShort(err)
			if !pause(retry, p.halt) {
				return
			}
		default:
			p.j.fail(fmt.Errorf("prepare segment: %w", err))
			p.mu.Lock()
			p.stopped = true
			p.change.Broadcast()
			p.mu.Unlock()
			return
		}
	}
}

// step makes a segment ready. If enough are ready, it fills a part of one with zeros. If all are
// filled, it removes a part of a dead file. If there is no space for another segment, and there are
// dead files that cannot be recycled, it removes those before it tries again to make a segment
// ready.
func (p *preparer) step() error {
	p.mu.Lock()
	need := len(p.ready) < ahead
	if p.short != nil && (p.leaving != nil || len(p.packed) > 0) {
		need = false
	}
	p.mu.Unlock()
	switch {
	case need:
		return p.make()
	case len(p.blank) > 0:
		return p.fill()
	}
	p.removeDead()
	return nil
}

// wait blocks until there is something to do. It returns false when the preparer has to stop.
func (p *preparer) wait() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopped && len(p.ready) >= ahead && len(p.blank) == 0 && !p.mayRemove() {
		p.change.Wait()
	}
	return !p.stopped
}

// mayRemove reports whether there is a dead file of which the next part may be removed now. The
// caller holds the lock.
func (p *preparer) mayRemove() bool {
	now := time.Now()
	p.taken = slices.DeleteFunc(p.taken, func(t time.Time) bool { return now.Sub(t) > horizon })
	spare := p.spare
	if spare > 0 {
		spare = max(spare, len(p.taken))
	}
	return (p.leaving != nil || len(p.packed) > 0 || len(p.dead) > spare) && (p.short != nil || !now.Before(p.rested))
}

func (p *preparer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped = true
		p.change.Broadcast()
	}
	close(p.halt)
}

// setShort records that there is no space. From then on take() fails instead of waiting.
func (p *preparer) setShort(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.short = errFull(err)
	p.tight.Store(len(p.ready) == 0)
	p.change.Broadcast()
}

// shortage returns why appends are refused for lack of space, or nil if they are not refused.
func (p *preparer) shortage() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused {
		return p.short
	}
	return nil
}

// take returns the next segment. It waits while that segment is being prepared. It returns
// engine.ErrFull if there is no space for one.
func (p *preparer) take() (*segment, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.ready) == 0 {
		if err := p.j.failed(); err != nil {
			return nil, err
		}
		if p.short != nil {
			p.refused = true
			return nil, p.short
		}
		if p.stopped {
			return nil, engine.ErrClosed
		}
		p.change.Wait()
	}
	s := p.ready[0]
	p.ready = p.ready[1:]
	p.taken = append(p.taken, time.Now())
	p.tight.Store(p.short != nil && len(p.ready) == 0)
	p.change.Broadcast()
	return s, nil
}

// keepSpare sets how many dead segments are kept for recycling. Under load this is at least one:
// recycling costs next to nothing, whereas a new file must be filled with zeros, and removing a file
// may stall the disk.
func (p *preparer) keepSpare(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = n
	p.change.Broadcast()
}

func (p *preparer) hasSpare() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.dead) > 0
}

// give hands a segment that was freed and has no more readers back to the preparer.
func (p *preparer) give(s *segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed { // the last reader released the segment after the journal was closed
		s.File.Close()
		return
	}
	list := &p.dead
	if s.Packed() != nil {
		list = &p.packed
	}
	*list = append(*list, s)
	p.change.Broadcast()
}

// removeDead removes a part of a dead file that is not needed for recycling, or the file if only one
// part is left. A disk may need more than a millisecond for each megabyte that a file gives back, and
// no sync returns meanwhile. So removeDead removes an eighth of a segment at a time, and no more than
// ReclaimRate bytes per second. Under load, it also spends no more than 1/removalShare of the time on
// files that could still be recycled. After a crash, the next opening removes the rest.
func (p *preparer) removeDead() {
	p.mu.Lock()
	if p.leaving == nil {
		list := &p.packed
		if len(p.packed) == 0 {
			list = &p.dead
		}
		if len(*list) == 0 {
			p.mu.Unlock()
			return
		}
		p.leaving = (*list)[0]
		p.left, *list = p.leaving.Stored(), (*list)[1:]
	}
	s, part := p.leaving, p.j.dir.Size/8
	recyclable := s.Packed() == nil // other files are not recycled under load, and would pile up
	p.mu.Unlock()
	begun := time.Now()
	if p.left > part && blocks.Stored(s.File).Truncate(p.left-part) == nil {
		p.left -= part
	} else {
		s.File.Close()
		p.j.dir.FS.Remove(s.Name) // if this fails, the next opening removes the file, because it is not in the manifest (the list of segments)
		s = nil
	}
	rest := time.Duration(part) * time.Second / time.Duration(p.j.opts.ReclaimRate)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spare > 0 && recyclable {
		rest = max(rest, min(removalShare*time.Since(begun), mostRest))
	}
	p.leaving, p.rested = s, time.Now().Add(rest)
	time.AfterFunc(rest, p.wake)
}

// wake makes wait() check again whether there is something to do.
func (p *preparer) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change.Broadcast()
}

// make makes one segment ready. It recycles a dead segment if there is one.
func (p *preparer) make() (err error) {
	p.mu.Lock()
	number := p.number
	p.number++
	var old *segment
	if len(p.dead) > 0 {
		old, p.dead = p.dead[0], p.dead[1:]
	}
	p.mu.Unlock()
	defer func() {
		if err != nil {
			p.giveBack(number)
		}
	}()
	s := p.j.newSegment(number)
	if old != nil {
		err = p.recycle(old, s)
	} else {
		err = p.create(s)
	}
	if err != nil {
		return spoiltFile{err}
	}
	if err := p.j.dir.FS.SyncDir(); err != nil {
		s.File.Close()
		return fmt.Errorf("sync directory: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready, p.short, p.refused = append(p.ready, s), nil, false
	if s.blank.Load() > 0 {
		p.blank = append(p.blank, s)
	}
	p.tight.Store(false)
	p.change.Broadcast()
	return nil
}

// fill fills a part of a segment with zeros. If that fails, and the segment is not in use yet, fill
// removes the segment.
func (p *preparer) fill() error {
	s := p.blank[0]
	err := s.fill(p.j.dir.Size, p.j.write.bulky.Load())
	if s.blank.Load() > 0 {
		return nil
	}
	p.blank = p.blank[1:]
	if err == nil || !p.withdraw(s) {
		return nil // an error is ignored if the segment is already in use, because a later write to the bad blocks will report it
	}
	s.File.Close()
	p.j.dir.FS.Remove(s.Name)
	p.giveBack(s.Number)
	return spoiltFile{fmt.Errorf("fill %s: %w", s.Name, err)}
}

// withdraw takes the newest segment back unless it is in use already.
func (p *preparer) withdraw(s *segment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.ready)
	if n == 0 || p.ready[n-1] != s {
		return false
	}
	p.ready = p.ready[:n-1]
	return true
}

// giveBack makes the next segment get this number, unless another segment has got a number since.
func (p *preparer) giveBack(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.number == number+1 {
		p.number = number
	}
}

// mostSpoilt is the number of unwritable files in a row that are replaced without a pause. After
// that, there is a pause before each attempt.
const mostSpoilt = 3

// spoiltFile is the error for a file that could not be prepared and was removed. The file held no
// data.
type spoiltFile struct{ error }

func (f spoiltFile) Unwrap() error { return f.error }

// recycle turns a dead segment into a ready one. No manifest lists the old number any more, so
// whatever a crash leaves under the old name is ignored. If recycling fails, the file is removed,
// which frees space if the reason was a lack of space.
func (p *preparer) recycle(old, s *segment) (err error) {
	s.File = old.File
	defer func() {
		if err != nil {
			s.File.Close()
			p.j.dir.FS.Remove(old.Name)
		}
	}()
	if err = directory.WriteSynced(s.File, 0, s.Header(p.j.dir.Salt)); err == nil {
		err = p.j.dir.FS.Rename(old.Name, s.Name)
	}
	if err != nil {
		return fmt.Errorf("recycle %s: %w", old.Name, err)
	}
	return nil
}

// create makes a new segment of the full size under a temporary name. The segment gets its final
// name only when its header is durable. Recovery can therefore treat a file with a segment name but
// without a valid header as damage.
func (p *preparer) create(s *segment) (err error) {
	f, err := p.j.dir.CreateTemporary(temporary)
	if err != nil {
		return fmt.Errorf("create %s: %w", s.Name, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			p.j.dir.FS.Remove(temporary)
		}
	}()
	err = f.Allocate(p.j.dir.Size)
	if errors.Is(err, errors.ErrUnsupported) {
		err = p.zero(f)
	} else if err == nil {
		s.filling = make(chan struct{}, 1)
		s.blank.Store(segments.DataStart)
	}
	if err == nil {
		err = directory.WriteSynced(f, 0, s.Header(p.j.dir.Salt))
	}
	if err == nil {
		err = p.j.dir.FS.Rename(temporary, s.Name)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", s.Name, err)
	}
	s.File = f
	return nil
}

// zeroStep is the number of zeros that the preparer writes between two syncs. It limits how long an
// append can wait for the preparer.
const zeroStep = 256 << 10

var zeros [zeroStep]byte

// zero fills the whole file with zeros.
func (p *preparer) zero(f disk.File) error {
	for off := int64(0); off < p.j.dir.Size; off += zeroStep {
		select {
		case <-p.halt:
			return engine.ErrClosed
		default:
		}
		if err := directory.WriteSynced(f, off, zeros[:min(zeroStep, p.j.dir.Size-off)]); err != nil {
			return err
		}
	}
	return nil
}

// fill fills the next part of a blank segment with zeros. The segment stops being blank when it is
// filled, when fill fails, and when the parameter bulky is true. (If the journal writes many bytes
// at a time, the zeros cost more than they save.)
func (s *segment) fill(size int64, bulky bool) error {
	s.filling <- struct{}{}
	defer func() { <-s.filling }()
	off := s.blank.Load()
	if bulky || off == 0 || off >= size {
		s.blank.Store(0)
		return nil
	}
	if err := directory.WriteSynced(s.File, off, zeros[:min(zeroStep, size-off)]); err != nil {
		s.blank.Store(0)
		return err
	}
	s.blank.Store(off + zeroStep)
	return nil
}

// claim makes the preparer skip the part of the segment below the offset end. It also keeps the
// preparer from writing and syncing the file until the caller calls the returned function. The
// caller must first sync its own write. Otherwise the preparer's sync could receive the error of
// that write, and the caller's sync would succeed.
func (s *segment) claim(end int64) (release func()) {
	if s.blank.Load() == 0 {
		return func() {}
	}
	s.filling <- struct{}{}
	if off := s.blank.Load(); off > 0 && off < end {
		s.blank.Store((end + 2*zeroStep - 1) / zeroStep * zeroStep) // skips a part, so that the preparer stays ahead of the writer
	}
	return func() { <-s.filling }
}

// files returns the number of ready and dead segments, including one that is being removed.
func (p *preparer) files() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.ready) + len(p.dead) + len(p.packed)
	if p.leaving != nil {
		n++
	}
	return n
}

// closeFiles closes the ready and dead segments. If a reader still holds a segment, give() closes
// it when the reader releases it.
func (p *preparer) closeFiles() {
	p.mu.Lock()
	p.closed = true
	open, leaving := slices.Concat(p.ready, p.dead, p.packed), p.leaving
	p.mu.Unlock()
	for _, s := range open {
		s.File.Close()
	}
	if leaving != nil {
		leaving.File.Close()
		p.j.dir.FS.Remove(leaving.Name)
	}
}
