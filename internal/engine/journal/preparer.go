package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/disk"
	"weir/internal/engine"
)

// preparer is the goroutine that makes segments ready before they are needed. A ready segment was
// written at full size (with zeros, or with the old content of a dead segment), has its header, is
// synced, and has a durable name. A sync costs a fraction on blocks that were written before, and
// switching to a ready segment costs nothing.
type preparer struct {
	j *Journal

	mu      sync.Mutex
	change  *sync.Cond
	ready   []*segment  // ready segments in the order of their numbers
	dead    []*segment  // freed segments, to be recycled or removed
	spare   int         // number of dead segments to keep for recycling
	number  uint64      // number of the next segment to prepare
	short   error       // why the last attempt found no space; nil if there was space
	refused bool        // an op was refused because of the shortage in short
	tight   atomic.Bool // there is no space for a segment and none is ready
	stopped bool
	closed  bool
	halt    chan struct{}
}

// ahead is the number of segments kept ready beyond the active one.
const ahead = 1

// temporary is the file name of a segment until it is ready.
const temporary = "segment.tmp"

func (p *preparer) init(j *Journal) {
	p.j, p.number = j, 1
	p.change = sync.NewCond(&p.mu)
	p.halt = make(chan struct{})
}

// run keeps the wanted number of segments ready and removes dead files that are not needed. After a
// shortage of space run tries again. If a file cannot be written, run tries another file. Any other
// error makes the journal read-only.
func (p *preparer) run() {
	spoilt := 0 // number of files in a row that could not be written
	for p.wait() {
		p.mu.Lock()
		need := len(p.ready) < ahead
		p.mu.Unlock()
		if !need {
			p.removeDead()
			continue
		}
		s, err := p.make()
		switch {
		case err == nil:
			p.add(s)
			spoilt = 0
		case errors.Is(err, engine.ErrClosed):
			return
		case errors.As(err, new(spoiltFile)) && !isShortage(err) && spoilt < mostSpoilt:
			spoilt++ // another file may be on better blocks of the disk
		case isShortage(err), errors.As(err, new(spoiltFile)):
			p.setShort(err)
			select {
			case <-time.After(retry):
			case <-p.halt:
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

// wait blocks until there is something to do. It returns false when the preparer has to stop.
func (p *preparer) wait() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopped && len(p.ready) >= ahead && len(p.dead) <= p.spare {
		p.change.Wait()
	}
	return !p.stopped
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

func (p *preparer) add(s *segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready, p.short, p.refused = append(p.ready, s), nil, false
	p.tight.Store(false)
	p.change.Broadcast()
}

// setShort records that there is no space. From then on take fails instead of waiting.
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
	p.tight.Store(p.short != nil && len(p.ready) == 0)
	p.change.Broadcast()
	return s, nil
}

// keepSpare sets how many dead segments are kept for recycling. Under load this is one: recycling
// costs next to nothing, whereas removing a file may stall the disk.
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
		s.file.Close()
		return
	}
	p.dead = append(p.dead, s)
	p.change.Broadcast()
}

// removeDead removes one dead file that is not needed for recycling.
func (p *preparer) removeDead() {
	p.mu.Lock()
	if len(p.dead) == 0 {
		p.mu.Unlock()
		return
	}
	s := p.dead[0]
	p.dead = p.dead[1:]
	p.mu.Unlock()
	s.file.Close()
	p.j.fs.Remove(s.name) // if this fails, the next start removes the file, because no manifest lists it
}

// make prepares one segment, from a dead one if possible.
func (p *preparer) make() (*segment, error) {
	p.mu.Lock()
	number := p.number
	var old *segment
	if len(p.dead) > 0 {
		old, p.dead = p.dead[0], p.dead[1:]
	}
	p.mu.Unlock()
	s := &segment{number: number, name: segmentName(number), seed: seed(p.j.salt, number), onRelease: p.give}
	s.refs.Store(1)
	var err error
	if old != nil {
		err = p.recycle(old, s)
	} else {
		err = p.create(s)
	}
	if err != nil {
		return nil, spoiltFile{err}
	}
	if err := p.j.fs.SyncDir(); err != nil {
		s.file.Close()
		return nil, fmt.Errorf("sync directory: %w", err)
	}
	p.mu.Lock()
	p.number++
	p.mu.Unlock()
	return s, nil
}

// mostSpoilt is the number of unwritable files in a row that are replaced at once. After that there
// is a pause before each attempt.
const mostSpoilt = 3

// spoiltFile is the error for a file that could not be prepared and was removed. The file held no
// data.
type spoiltFile struct{ error }

func (f spoiltFile) Unwrap() error { return f.error }

// recycle turns a dead segment into a ready one. No manifest lists the old number any more, so
// whatever a crash leaves under the old name is ignored. If recycling fails, the file is removed,
// which frees space if the reason was a lack of space.
func (p *preparer) recycle(old, s *segment) (err error) {
	s.file = old.file
	defer func() {
		if err != nil {
			s.file.Close()
			p.j.fs.Remove(old.name)
		}
	}()
	if err := s.file.WriteAt(0, encodeHeader(p.j.salt, s.number, p.j.size)); err != nil {
		return fmt.Errorf("recycle %s: %w", old.name, err)
	}
	if err := s.file.SyncData(); err != nil {
		return fmt.Errorf("recycle %s: %w", old.name, err)
	}
	if err := p.j.fs.Rename(old.name, s.name); err != nil {
		return fmt.Errorf("recycle %s: %w", old.name, err)
	}
	return nil
}

// create writes a new segment in full under a temporary name. The segment gets its final name only
// when its header is durable. Recovery can therefore treat a file with a segment name but without a
// valid header as damage.
func (p *preparer) create(s *segment) (err error) {
	if err := p.j.fs.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", temporary, err)
	}
	f, err := p.j.fs.Create(temporary)
	if err != nil {
		return fmt.Errorf("create %s: %w", s.name, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			p.j.fs.Remove(temporary)
		}
	}()
	if err := p.zero(f); err != nil {
		return fmt.Errorf("create %s: %w", s.name, err)
	}
	if err := f.WriteAt(0, encodeHeader(p.j.salt, s.number, p.j.size)); err != nil {
		return fmt.Errorf("create %s: %w", s.name, err)
	}
	if err := f.SyncData(); err != nil {
		return fmt.Errorf("create %s: %w", s.name, err)
	}
	if err := p.j.fs.Rename(temporary, s.name); err != nil {
		return fmt.Errorf("create %s: %w", s.name, err)
	}
	s.file = f
	return nil
}

// zeroStep is the number of bytes written between syncs. It bounds how long an append can wait
// behind the preparer's writes.
const zeroStep = 4 << 20

// zero fills the whole file with zeros.
func (p *preparer) zero(f disk.File) error {
	zeros := make([]byte, min(zeroStep, p.j.size))
	for off := int64(0); off < p.j.size; off += int64(len(zeros)) {
		select {
		case <-p.halt:
			return engine.ErrClosed
		default:
		}
		if err := f.WriteAt(off, zeros[:min(int64(len(zeros)), p.j.size-off)]); err != nil {
			return err
		}
		if err := f.SyncData(); err != nil {
			return err
		}
	}
	return nil
}

// files returns the number of ready and dead segments.
func (p *preparer) files() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready) + len(p.dead)
}

// closeFiles closes the ready and dead segments. A segment that a reader still holds is closed by
// give when the reader releases it.
func (p *preparer) closeFiles() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range append(p.ready, p.dead...) {
		s.file.Close()
	}
}
