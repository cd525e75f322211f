package journal

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

const (
	// copyAtOnce is the size of one copy op. It bounds how long later appends wait behind a copy.
	copyAtOnce = 256 << 10
	// calm is how long the journal must be idle before the reclaimer applies the strict bound (see
	// victim).
	calm = time.Second
	// calmBytes is a number of bytes. The journal counts as idle if no more than this is appended
	// during the time calm.
	calmBytes = 1 << 20
)

// reclaimer is the goroutine that frees segments without live records (records that are still
// needed). It also empties sparse segments: it copies their live records to a cold segment (see
// cold.go) or to the end of the journal.
type reclaimer struct {
	j      *Journal
	signal signal
	halt   chan struct{}

	cold     *cold         // cold segment that is being filled; nil if there is none
	warm     time.Time     // no cold segment is begun before this time, because the last attempt failed
	building atomic.Uint32 // number of the cold segment; 0 if there is none
	live     int64         // live bytes of the journal, as victim last counted them

	mu        sync.Mutex
	forgotten []forgotten
	counting  sync.Mutex // held while bytes of forgotten entries are subtracted, so that a test sees all or none of them subtracted
}

// forgotten holds what a trim or a deletion removed from memory: entries, and the mark (the record
// of the previous trim). Their bytes still count as live.
type forgotten struct {
	items index.Entries
	mark  index.Extent
}

func (r *reclaimer) init(j *Journal) {
	r.j = j
	r.signal, r.halt = make(signal, 1), make(chan struct{})
}

func (r *reclaimer) stop() { close(r.halt) }

// forget takes over entries that no reader can reach any more. The reclaimer later subtracts their
// bytes from the live bytes. The caller does not do so itself, because a log can hold millions of
// entries.
func (r *reclaimer) forget(items index.Entries, mark index.Extent) {
	r.mu.Lock()
	r.forgotten = append(r.forgotten, forgotten{items, mark})
	r.mu.Unlock()
	r.signal.wake()
}

// run waits for a signal (a trim, a deletion or a sealed segment) and reclaims space down to the
// bound for a journal under load. Once the journal is idle, run continues down to the strict bound.
// See victim for both bounds.
func (r *reclaimer) run() {
	defer r.dropCold()
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

// tidy waits until the journal is idle and then works towards the strict bound. It returns false if
// there is nothing to do.
func (r *reclaimer) tidy() bool {
	s, _ := r.victim(true)
	if s == nil && r.cold == nil && !r.j.prepare.hasSpare() {
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
	r.settleCold()
	r.j.prepare.keepSpare(0)
	return s == nil || r.step(true)
}

// step frees one segment or empties one. It returns false if there is nothing to do, or if the
// journal is closing.
func (r *reclaimer) step(strict bool) bool {
	select {
	case <-r.halt:
		return false
	default:
	}
	r.account()
	if r.cold != nil && r.cold.sealed {
		r.adopt()
	}
	s, free := r.victim(strict)
	switch {
	case s == nil:
		return false
	case free:
		o := &freeOp{c: &r.j.commit, seg: s, done: make(chan error, 1)}
		r.j.do(o)
		return r.settled(<-o.done)
	default:
		return r.settled(r.empty(s, strict))
	}
}

// settled reports whether to continue after an operation that returned err. If err is a lack of
// space, settled first waits.
func (r *reclaimer) settled(err error) bool {
	if err == nil {
		return true
	}
	if errors.Is(err, engine.ErrFull) {
		return pause(retry, r.halt)
	}
	return false
}

// account subtracts the bytes of forgotten entries and of unneeded tombstones (records of
// deletions) from the live bytes of their segments.
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
	r.j.store.dropTombstones()
}

// victim picks the next segment to work on, or nil. If there is a segment without live bytes,
// victim returns it and true: the caller can free it at once. Otherwise, while too much of the
// journal is dead (not needed), victim returns the segment with the fewest live bytes and false: the
// caller copies the live records elsewhere, which is called emptying the segment.
//
// Under load, "too much" is more than one segment plus an eighth of the live bytes: the oldest
// segment is always partly dead, and usually its remaining entries are trimmed soon anyway. When
// idle (strict), "too much" means that the dead bytes plus the unused part of the active segment
// exceed one segment. The journal, including the segment that is kept ready, is then at most two
// segments larger than its live bytes. A segment that is more than 7/8 live is left alone: emptying
// it would write more than seven bytes for each byte it frees.
func (r *reclaimer) victim(strict bool) (s *segment, free bool) {
	dead, live := int64(0), int64(0)
	for _, seg := range r.j.store.allSegments() {
		here := seg.live.Load()
		live += here
		if seg.moving {
			continue
		}
		if !seg.Sealed.Load() {
			if strict {
				dead += r.j.dir.Size - here
			}
			continue
		}
		dead += seg.Used - here
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
	limit := r.j.dir.Size
	if !strict {
		limit += live / 8
	}
	r.live = live
	if s == nil || dead <= limit || s.live.Load() > s.Used/8*7 {
		return nil, false
	}
	return s, false
}

// empty copies the live records of a segment to the cold segment, or to the end of the journal. If a
// record is damaged, the segment is left as it is, so that a reader of that record still gets an
// error instead of finding nothing.
func (r *reclaimer) empty(s *segment, strict bool) error {
	s.acquire()
	defer s.release()
	slots, err := s.Index()
	if err != nil {
		s.stuck = true
		return nil
	}
	o := r.newCopy()
	slots = segments.SortByLog(slots)
	for ; len(slots) > 0; slots = slots[segments.SlotSize:] {
		c, err := r.load(s, segments.DecodeSlot(slots))
		if err != nil {
			s.stuck = true
			return nil
		}
		if c == nil {
			continue
		}
		if !strict {
			chilled, err := r.chill(s, c)
			if err != nil {
				return err
			}
			if chilled {
				continue
			}
		}
		o.copies = append(o.copies, *c)
		if o.size += c.record.Size() + segments.KeyRoom; o.size >= min(copyAtOnce, int(r.j.dir.Size/4)) {
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

// copy commits a copy op, then waits long enough to stay below ReclaimRate.
func (r *reclaimer) copy(o *copyOp) error {
	r.j.do(o)
	if err := <-o.done; err != nil {
		return err
	}
	if !pause(time.Duration(o.size)*time.Second/time.Duration(r.j.opts.ReclaimRate), r.halt) {
		return engine.ErrClosed
	}
	return nil
}

// load reads the record that an index slot describes. It returns nil if the record is no longer
// needed.
func (r *reclaimer) load(s *segment, sl segments.Slot) (*copied, error) {
	at := index.Place{Segment: uint32(s.Number), Off: sl.Off}
	switch sl.Kind {
	case segments.KindManifest:
		return nil, nil
	case segments.KindBatch, segments.KindGapClosed, segments.KindMark: // the slot alone tells whether these are dead, so dead ones are skipped without reading
		if !r.j.store.current(at, &segments.Record{Kind: sl.Kind, Log: sl.Log, Seq: sl.Seq}) {
			return nil, nil
		}
	}
	rec, err := (&segments.Window{Seg: &s.Segment, Ahead: 1}).Record(sl)
	c := &copied{record: rec, from: at}
	if err != nil {
		return nil, err
	}
	if !r.j.store.current(at, &c.record) {
		return nil, nil
	}
	return c, nil
}

// copied is one record that is being copied.
type copied struct {
	record segments.Record
	from   index.Place
	to     index.Place
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

// stage copies the records that are still needed when the committer reaches this operation.
// Operations before it in the queue may have removed some of them.
func (o *copyOp) stage(g *group) {
	for i := range o.copies {
		c := &o.copies[i]
		if c.staged = g.current(c.from, &c.record); c.staged {
			c.to = g.add(&c.record)
		}
	}
}

// settle makes the in-memory state point to the copies.
func (o *copyOp) settle(*group) {
	for i := range o.copies {
		if c := &o.copies[i]; c.staged {
			o.j.counts.copied.Add(uint64(c.record.Size()))
			o.j.store.move(&c.record, c.from, c.to)
		}
	}
}

func (o *copyOp) finish(err error) { o.done <- err }
