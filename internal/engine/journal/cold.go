package journal

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

const (
	coldFile = "cold.tmp" // name of a cold segment until it is complete
	coldMost = 256 << 10  // largest number of records in a cold segment; it limits the memory for cold.moves, 40 bytes per record
)

// cold is a segment that the reclaimer fills with copies of long-lived entries. If these were copied
// to the active segment, they would lie between fresh entries that are soon trimmed, and would have
// to be copied again and again. A cold segment becomes part of the journal when it is complete (see
// adopt). Until then nothing refers to it, and the originals stay.
type cold struct {
	seg    *segment
	group  *group
	next   uint64     // number of the next group; each cold segment counts its groups from 1
	dirty  int        // bytes written since the last sync
	moves  []move     // records in the segment
	from   []*segment // segments of the originals
	held   int64      // unneeded bytes in the segments of the originals; freed only after adopt
	zeroed bool       // the end of the file need not be filled with zeros: the file was in use before, or is compressed
	sealed bool
	named  bool // the file has its final name
}

// move says that an entry was copied from one place to another.
type move struct {
	log, seq uint64
	from, to index.Place
	bytes    int64
}

// errWaiting means that the cold segment is full and cannot be adopted yet.
var errWaiting = errors.New("the cold segment is full")

// chill copies a record of segment s to the cold segment. It returns false if the record must be
// copied to the active segment instead. There are four reasons: the record is not an entry, s is
// newer than the cold segment, the cold segment cannot be written, or too much space would stay
// occupied until the cold segment is adopted (see mayHold). It returns errWaiting if the entry must
// stay where it is for now.
func (r *reclaimer) chill(s *segment, c *copied) (bool, error) {
	if !c.record.Kind.Entry() || !s.moving && !r.mayHold(s) {
		return false, nil
	}
	if k := r.cold; k != nil && !k.sealed && (len(k.moves) == coldMost || !k.seg.Fits(c.record.Size()+segments.KeyRoom, 1, 0)) {
		r.sealCold()
	}
	if r.cold != nil && r.cold.sealed && !r.adopt() {
		return false, errWaiting
	}
	if r.cold == nil && !r.beginCold() || s.Number > r.cold.seg.Number {
		return false, nil
	}
	k := r.cold
	m := move{log: c.record.Log, seq: c.record.Seq, from: c.from, bytes: c.record.Bytes()}
	m.to = k.group.add(&c.record)
	k.moves = append(k.moves, m)
	if !s.moving {
		s.moving = true
		k.from, k.held = append(k.from, s), k.held+s.Used-s.live.Load()
	}
	return k.group.Length < copyAtOnce || r.writeCold(), nil
}

// mayHold reports whether the entries of segment s may be copied to the cold segment. An emptied
// segment takes space until the cold segment is adopted. So the dead (unneeded) bytes of all emptied
// segments may be at most an eighth of the live (needed) bytes of the journal. A cold segment is
// begun only if segments like s can fill it within this limit.
func (r *reclaimer) mayHold(s *segment) bool {
	live, most := s.live.Load(), r.live/8
	if r.j.opts.holdMore {
		most = 1 << 60
	}
	dead := float64(s.Used - live)
	if r.cold == nil {
		return dead/float64(live)*float64(r.j.dir.Size) <= float64(most)
	}
	return dead+float64(r.cold.held) <= float64(most)
}

// beginCold prepares a file for a cold segment. The number of the cold segment is higher than those
// of all segments in use, and r.building holds this number. A log that is deleted from now on may
// have copies in the cold segment. So the tombstone (the record of the deletion) is needed as long
// as the cold segment exists, and its field birth gets at least this number. A log that was deleted
// before must not be copied. So beginCold passes an empty copy op through the queue: when the op
// has returned, all earlier deletions are in memory.
func (r *reclaimer) beginCold() bool {
	if time.Now().Before(r.warm) {
		return false
	}
	r.warm = time.Now().Add(calm) // no other attempt before this time; reset below if this attempt succeeds
	number, old := r.j.prepare.reserve(!r.j.opts.Compress)
	s := r.j.newSegment(number)
	if old != nil {
		if r.j.dir.FS.Rename(old.Name, coldFile) != nil {
			r.j.prepare.give(old)
			return false
		}
		s.File = old.File
	} else if f, err := r.j.dir.CreateTemporary(coldFile); err == nil {
		s.File = f
	} else {
		return false
	}
	if r.j.opts.Compress {
		s.Pack(&r.j.dir.Cache)
	}
	r.cold = &cold{seg: s, group: &group{j: r.j}, next: 1, zeroed: old != nil || r.j.opts.Compress}
	r.cold.group.begin(s)
	r.building.Store(uint32(number))
	if s.File.WriteAt(0, s.Header(r.j.dir.Salt)) != nil || r.copy(r.newCopy()) != nil {
		r.dropCold()
		return false
	}
	r.warm = time.Time{}
	return true
}

// writeCold writes the records that were added since the last call, no faster than ReclaimRate. If
// that fails, it drops the cold segment and returns false.
func (r *reclaimer) writeCold() bool {
	k, g := r.cold, r.cold.group
	err := k.seg.File.WriteAt(g.Off, g.Buffers(k.seg.Seed, k.next)...)
	if k.dirty += g.Length; err == nil && k.dirty >= zeroStep {
		k.dirty, err = 0, k.seg.File.SyncData()
	}
	if err != nil || !pause(time.Duration(g.Length)*time.Second/time.Duration(r.j.opts.ReclaimRate), r.halt) {
		r.dropCold()
		return false
	}
	k.next++
	r.j.counts.bytes.Add(uint64(g.Length))
	r.j.counts.copied.Add(uint64(g.Length))
	g.begin(k.seg)
	return true
}

// sealCold completes the cold segment, or drops it.
func (r *reclaimer) sealCold() {
	k := r.cold
	if k.group.Records > 0 && !r.writeCold() {
		return
	}
	if !k.zeroed && k.seg.Fill() != nil || k.seg.Seal(k.next, nil) != nil {
		r.dropCold()
		return
	}
	k.sealed = true
}

// adopt makes a complete cold segment part of the journal. It begins only when two segments with
// higher numbers are in use. First it gives the file its final name. If a crash comes now, these
// two keep the next opening from taking the file for the newest segment: it takes the file for a
// freed one. Then a manifest (a list of segments) that includes the segment becomes durable. Then
// memory refers to the copies, and only after that can the originals be freed. adopt returns false
// if the segment cannot be adopted yet, or was dropped.
func (r *reclaimer) adopt() bool {
	k := r.cold
	all := r.j.store.allSegments()
	if len(all) < 2 || all[len(all)-2].Number < k.seg.Number {
		return false
	}
	if !k.named {
		if r.j.dir.FS.Rename(coldFile, k.seg.Name) != nil {
			r.dropCold()
			return false
		}
		k.named = true
		if err := r.j.dir.FS.SyncDir(); err != nil {
			r.j.fail(fmt.Errorf("sync directory: %w", err))
			return false
		}
	}
	o := &adoptOp{c: &r.j.commit, seg: k.seg, done: make(chan error, 1)}
	r.j.do(o)
	if <-o.done != nil {
		if o.staged { // the manifest may be on the disk, so the file must stay
			r.forgetCold()
		}
		return false
	}
	for _, m := range k.moves {
		if l := r.j.store.log(engine.LogID(m.log)); l != nil {
			k.seg.live.Add(m.bytes)
			old := k.seg
			if l.move(&segments.Record{Seq: m.seq}, m.from, m.to) {
				old = r.j.store.segment(m.from.Segment)
			}
			old.live.Add(-m.bytes)
		}
	}
	r.forgetCold()
	return true
}

// settleCold is called when the journal is idle. It adopts the cold segment if the segment is at
// least half full, and drops it otherwise. The emptied segments cannot wait until the cold segment
// is full, because the strict bound on the size of an idle journal (see victim) leaves no space for
// them.
func (r *reclaimer) settleCold() {
	if k := r.cold; k != nil && !k.sealed && k.seg.End > r.j.dir.Size/2 {
		r.sealCold()
	}
	if k := r.cold; k != nil && (!k.sealed || !r.adopt()) {
		r.dropCold()
	}
}

// dropCold gives up the cold segment. The originals of its records are still in use.
func (r *reclaimer) dropCold() {
	k := r.cold
	if k == nil {
		return
	}
	k.seg.File.Close()
	name := coldFile
	if k.named {
		name = k.seg.Name
	}
	r.j.dir.FS.Remove(name) // if this fails, the next opening removes the file
	r.warm = time.Now().Add(calm)
	r.forgetCold()
}

func (r *reclaimer) forgetCold() {
	for _, s := range r.cold.from {
		s.moving = false
	}
	r.cold = nil
	r.building.Store(0)
}

// adoptOp adds a complete segment to the journal.
type adoptOp struct {
	c      *committer
	seg    *segment
	staged bool
	done   chan error
}

func (o *adoptOp) bound() (int, int) { return o.c.manifestSize(), 1 }
func (o *adoptOp) class() class      { return copying }
func (o *adoptOp) settle(*group)     {}
func (o *adoptOp) finish(err error)  { o.done <- err }
func (o *adoptOp) stage(g *group) {
	o.staged = true
	o.c.j.store.addSegment(o.seg)
	o.c.manifest(g)
}

// reserve takes a number that no other segment gets. If the parameter recycle is true, it also takes
// the file of a freed segment if there is one.
func (p *preparer) reserve(recycle bool) (number uint64, old *segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number = p.number
	p.number++
	if n := len(p.dead); n > 0 && recycle {
		old, p.dead = p.dead[n-1], slices.Delete(p.dead, n-1, n)
	}
	return number, old
}
