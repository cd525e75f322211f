package journal

import (
	"errors"
	"sync"
	"time"

	"weir/internal/engine"
)

const (
	// copyAtOnce bounds what reclaiming puts before the appends that come after it.
	copyAtOnce = 256 << 10
	// calm is how long there must have been next to no appends before reclaiming tidies up to the last segment.
	calm = time.Second
	// calmBytes is what counts as next to no appends.
	calmBytes = 1 << 20
)

// reclaimer gives segments up that hold nothing any more, and empties sparse ones by copying what they still hold to
// the end of the journal.
type reclaimer struct {
	j      *Journal
	signal chan struct{}
	halt   chan struct{}

	mu        sync.Mutex
	forgotten []forgotten
	counting  sync.Mutex // held while they are counted: whoever compares counts finds each of them wholly or not
}

// forgotten is what a trim or a deletion left behind, still counted as live.
type forgotten struct {
	items index
	mark  extent
}

func (r *reclaimer) init(j *Journal) {
	r.j = j
	r.signal, r.halt = make(chan struct{}, 1), make(chan struct{})
}

func (r *reclaimer) wake() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

func (r *reclaimer) stop() { close(r.halt) }

// forget hands over entries that nobody can reach any more. Counting them is left to the reclaimer: a log can hold
// millions, and the committer must not wait.
func (r *reclaimer) forget(items index, mark extent) {
	r.mu.Lock()
	r.forgotten = append(r.forgotten, forgotten{items, mark})
	r.mu.Unlock()
	r.wake()
}

func (r *reclaimer) run() {
	for {
		select {
		case <-r.signal:
		case <-r.halt:
			return
		}
		r.j.prepare.keepSpare(1)
		for again := true; again; {
			for r.step(false) {
			}
			again = r.tidy()
		}
	}
}

// tidy goes on to the strict bound once nobody appends; false when there is nothing to do.
func (r *reclaimer) tidy() bool {
	s, _ := r.victim(true)
	if s == nil && !r.j.prepare.hasSpare() {
		return false
	}
	before := r.j.counts.appended()
	t := time.NewTimer(calm)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.signal:
		r.j.prepare.keepSpare(1)
		return true
	case <-r.halt:
		return false
	}
	if r.j.counts.appended() > before+calmBytes {
		r.j.prepare.keepSpare(1)
		return true
	}
	r.j.prepare.keepSpare(0)
	return s == nil || r.step(true)
}

// step does one piece of work; false when there is none, or when it must wait.
func (r *reclaimer) step(strict bool) bool {
	select {
	case <-r.halt:
		return false
	default:
	}
	r.account()
	s, empty := r.victim(strict)
	switch {
	case s == nil:
		return false
	case empty:
		o := &freeOp{c: &r.j.commit, seg: s, done: make(chan error, 1)}
		r.j.do(o)
		return r.settled(<-o.done)
	default:
		return r.settled(r.empty(s))
	}
}

// settled tells whether to go on. What failed for want of space is tried again when something changes, or in a while.
func (r *reclaimer) settled(err error) bool {
	if err == nil {
		return true
	}
	if errors.Is(err, engine.ErrFull) {
		return r.pause(retry)
	}
	return false
}

// pause waits; false when the journal closes meanwhile.
func (r *reclaimer) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.halt:
		return false
	}
}

func (r *reclaimer) account() {
	r.counting.Lock()
	defer r.counting.Unlock()
	r.mu.Lock()
	all := r.forgotten
	r.forgotten = nil
	r.mu.Unlock()
	for i := range all {
		r.j.store.account(&all[i].items, -1)
		r.j.store.mu.RLock()
		r.j.store.drop(all[i].mark)
		r.j.store.mu.RUnlock()
	}
}

// victim picks the segment to give up (empty) or to empty: one without live bytes at once, else the one with the
// fewest, while too much of the journal is dead.
//
// Under load that is more than a segment and an eighth of what is live: the oldest segment is always partly dead, and
// dies by itself. In calm (strict) it is whatever, together with the unused part of the active segment, makes more than
// one segment: with the one that is kept ready the journal is then within two segments of its live bytes. A segment
// that is more than seven eighths live is left alone: emptying it would write eight times what it saves.
func (r *reclaimer) victim(strict bool) (s *segment, empty bool) {
	dead, live := int64(0), int64(0)
	for _, seg := range r.j.store.allSegments() {
		here := seg.live.Load()
		live += here
		if !seg.sealed.Load() {
			if strict {
				dead += r.j.size - here
			}
			continue
		}
		dead += seg.used - here
		if seg.stuck {
			continue
		}
		if here == 0 {
			return seg, true
		}
		if s == nil || here < s.live.Load() {
			s = seg
		}
	}
	limit := r.j.size
	if !strict {
		limit += live / 8
	}
	if s == nil || dead <= limit || s.live.Load() > s.used/8*7 {
		return nil, false
	}
	return s, false
}

// empty copies what a segment still holds. A record that does not check out stays where it is, and its segment with
// it: it is reported when somebody asks for it.
func (r *reclaimer) empty(s *segment) error {
	s.acquire()
	defer s.release()
	index, err := s.index(r.j.size)
	if err != nil {
		s.stuck = true
		return nil
	}
	o := r.newCopy()
	for ; len(index) > 0; index = index[slotSize:] {
		c, err := r.load(s, decodeSlot(index))
		if err != nil {
			s.stuck = true
			return nil
		}
		if c == nil {
			continue
		}
		o.copies = append(o.copies, *c)
		if o.size += c.record.size(); o.size >= min(copyAtOnce, int(r.j.size/4)) {
			if err := r.copy(o); err != nil {
				return err
			}
			o = r.newCopy()
		}
	}
	if len(o.copies) > 0 {
		return r.copy(o)
	}
	return nil
}

func (r *reclaimer) newCopy() *copyOp { return &copyOp{j: r.j, done: make(chan error, 1)} }

// copy commits copies and keeps to the rate.
func (r *reclaimer) copy(o *copyOp) error {
	r.j.do(o)
	if err := <-o.done; err != nil {
		return err
	}
	if !r.pause(time.Duration(o.size) * time.Second / time.Duration(r.j.opts.ReclaimRate)) {
		return engine.ErrClosed
	}
	return nil
}

// load reads the record of a slot; nil when it is not needed any more.
func (r *reclaimer) load(s *segment, sl slot) (*copied, error) {
	at := place{uint32(s.number), sl.off}
	switch sl.kind {
	case kindManifest:
		return nil, nil
	case kindBatch, kindGapClosed, kindMark: // for these a look at the slot tells
		if !r.j.store.current(at, &record{kind: sl.kind, log: sl.log, seq: sl.seq}) {
			return nil, nil
		}
	}
	buf := make([]byte, int(sl.head)+int(sl.size))
	if err := s.read(buf, int64(sl.off)); err != nil {
		return nil, err
	}
	c := &copied{from: at}
	if err := c.record.decode(buf, s.seed); err != nil {
		return nil, err
	}
	if !r.j.store.current(at, &c.record) {
		return nil, nil
	}
	return c, nil
}

// copied is one record on its way to another place.
type copied struct {
	record record
	from   place
	to     place
	staged bool
}

// copyOp writes records again at the end of the journal.
type copyOp struct {
	j      *Journal
	copies []copied
	size   int
	done   chan error
}

func (o *copyOp) bound() (int, int) { return o.size, len(o.copies) }
func (o *copyOp) class() class      { return copying }

func (o *copyOp) stage(g *group) {
	for i := range o.copies {
		c := &o.copies[i]
		if c.staged = g.current(c.from, &c.record); c.staged {
			c.to = g.add(&c.record)
		}
	}
}

func (o *copyOp) settle(*group) {
	for i := range o.copies {
		if c := &o.copies[i]; c.staged {
			o.j.counts.copied.Add(uint64(c.record.size()))
			o.j.store.move(&c.record, c.from, c.to)
		}
	}
}

func (o *copyOp) finish(err error) { o.done <- err }
