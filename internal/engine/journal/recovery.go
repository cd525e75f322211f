package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// recovery is the state of opening a journal. Recovery writes nothing until it has checked
// everything. After that, it rewrites the newest bytes, and writes missing indexes and the file
// "end". The step numbers are those of DESIGN.md.
type recovery struct {
	j                *Journal
	segments         map[uint64]*segment // all segment files
	bad              map[uint64]error    // errors of the segment files whose header or size is wrong
	numbers          []uint64            // numbers of all segment files, sorted
	tail             *segment            // the last segment that holds a group (the records of one write); nil in a fresh journal
	segments.Scanned                     // the groups of the tail; if the tail is sealed, newest is the offset of its keys and index
	unused           []*segment          // segments above the tail
	stale            []string            // files that an interrupted preparation, copy, repair or restore has left
	rebuilt          []*segment          // full segments whose index was built from their groups
	deleted          map[string]*tombstone
	over             map[uint64]bool // logs whose deletion is in the tail; their entries are not read into memory
	logs             []*log          // all logs with entries or a mark, in the order in which they were found
	recent           [256]*log       // logs that were used recently, by the lowest bits of their ids
}

// recover runs the steps of opening. If a step fails, all segment files are closed.
func (j *Journal) recover() error {
	fresh, err := j.dir.Identify() // steps 1 to 3
	if err != nil {
		return err
	}
	r := newRecovery(j)
	if fresh {
		return nil
	}
	steps := []func() error{
		r.j.dir.ReadEnd, r.openFiles, r.findTail, r.compareEnd, r.readManifest, r.findDeleted, r.readIndexes, r.settle, r.confirm,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			r.closeFiles()
			return err
		}
	}
	for _, name := range r.stale {
		j.dir.FS.Remove(name)
	}
	return nil
}

func newRecovery(j *Journal) *recovery {
	return &recovery{
		j: j, segments: map[uint64]*segment{}, bad: map[uint64]error{},
		deleted: map[string]*tombstone{}, over: map[uint64]bool{},
	}
}

// openFiles is step 4: open every file with a segment name and check its header.
func (r *recovery) openFiles() error {
	others, err := r.j.dir.OpenSegments(func(number uint64) *segments.Segment {
		s := r.j.newSegment(number)
		r.segments[number] = s
		r.numbers = append(r.numbers, number)
		return &s.Segment
	})
	for _, name := range others {
		if name == temporary || name == coldFile || disk.Staged(name) {
			r.stale = append(r.stale, name)
		}
	}
	slices.Sort(r.numbers)
	if err != nil {
		return err
	}
	for _, number := range r.numbers {
		err := r.segments[number].CheckHeader()
		if errors.Is(err, engine.ErrDamaged) {
			r.bad[number] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// findTail is step 5: search from the highest segment number downwards. The first segment that
// holds a group is the tail. A tail that is not sealed is read group by group.
func (r *recovery) findTail() error {
	for _, number := range slices.Backward(r.numbers) {
		if err := r.bad[number]; err != nil {
			return err // a file gets its name only after its header is durable, so this is damage; the file may be the tail
		}
		s := r.segments[number]
		slots, err := s.Index()
		if err == nil {
			r.tail, s.Slots = s, slots
			s.Sealed.Store(true)
			r.Scanned, err = s.Summary()
			r.j.write.next = r.Scanned.Next
			return err
		}
		if !errors.Is(err, engine.ErrDamaged) {
			return err
		}
		x, err := s.Scan()
		if err != nil {
			return err
		}
		if x.Next > 0 {
			r.tail, r.Scanned, r.j.write.next = s, x, x.Next
			return nil
		}
		r.unused = append(r.unused, s)
	}
	return nil
}

// compareEnd is the end of step 5: the log must reach as far as the file "end" says. The segment
// that "end" names must exist even if it had no group when "end" was written, because groups may
// have been written to it since.
func (r *recovery) compareEnd() error {
	e := r.j.dir.End.Latest
	if next := r.j.write.next; next < e.Group {
		return &DamageError{File: segments.Name(e.Segment), Offset: segments.DataStart, What: "group", Err: fmt.Errorf("groups %d to %d are missing", next, e.Group-1)}
	}
	if e.Segment > 0 && r.segments[e.Segment] == nil && (r.tail == nil || r.tail.Number < e.Segment) {
		return &DamageError{File: segments.Name(e.Segment), What: "segment", Err: segments.ErrMissing}
	}
	return nil
}

// ending returns where the log ends, as recovery found it.
func (r *recovery) ending() directory.Ending {
	e := directory.Ending{Group: r.j.write.next}
	if s := r.tail; s != nil {
		e.Segment, e.Offset = s.Number, s.End
	}
	return e
}

// readManifest is step 6: read the last manifest, which lists the segments of the journal.
func (r *recovery) readManifest() error {
	if r.tail == nil {
		r.keepUnused()
		return nil
	}
	var last *segments.Slot
	for b := r.tail.Slots; len(b) > 0; b = b[segments.SlotSize:] {
		if sl := segments.DecodeSlot(b); sl.Kind == segments.KindManifest {
			last = &sl
		}
	}
	if last == nil {
		return r.tail.Damage(segments.DataStart, "manifest", segments.ErrMissing)
	}
	m, err := (&segments.Window{Seg: &r.tail.Segment, Ahead: 1}).Record(*last) // reads this record only
	if err != nil {
		return err
	}
	r.j.commit.next = m.Seq
	listed := map[uint64]bool{}
	for b := m.Payload; len(b) >= 8; b = b[8:] {
		n := binary.LittleEndian.Uint64(b)
		listed[n] = true
		if err := r.bad[n]; err != nil {
			return err
		}
		if r.segments[n] == nil {
			return &DamageError{File: segments.Name(n), What: "segment", Err: segments.ErrMissing}
		}
		r.j.store.addSegment(r.segments[n])
	}
	for _, n := range r.numbers {
		switch s := r.segments[n]; {
		case n >= r.tail.Number || listed[n]:
		case r.bad[n] != nil: // not to be recycled: a crash may have interrupted its removal, or its recycling
			s.File.Close()
			delete(r.segments, n)
			r.stale = append(r.stale, s.Name)
		default:
			r.j.prepare.give(s)
		}
	}
	r.keepUnused()
	return nil
}

// keepUnused hands the segments above the tail to the preparer as ready segments.
func (r *recovery) keepUnused() {
	p := &r.j.prepare
	slices.Reverse(r.unused)
	p.ready = r.unused
	if n := len(r.numbers); n > 0 {
		p.number = r.numbers[n-1] + 1
	}
}

// findDeleted collects the deletions in the tail before the entries are read. A log may have been
// deleted because its index does not fit in memory. In that case, its entries must not be read into
// memory again.
func (r *recovery) findDeleted() error {
	if r.tail != nil {
		for b := r.tail.Slots; len(b) > 0; b = b[segments.SlotSize:] {
			if sl := segments.DecodeSlot(b); sl.Kind == segments.KindDeleted {
				r.over[sl.Log] = true
			}
		}
	}
	return nil
}

// insert adds an entry to the index of its log, unless recovery leaves the entries of that log out
// of memory.
func (r *recovery) insert(at index.Place, sl segments.Slot) {
	if r.j.entriesLeftOut || r.over[sl.Log] {
		return
	}
	r.log(sl.Log).index.Add(&index.Item{
		Seq: weir.Seq(sl.Seq), Time: weir.Time(sl.Time), Place: at, Size: sl.Size, Head: sl.Head,
		Kind: sl.Kind, Flags: sl.Flags, Keyed: sl.Keyed, Tag: sl.Tag,
	})
}

// applyDeletion applies the deletion of a document. Of several deletions it keeps the newest. The
// parameter first is the segment with the oldest state of the document, or 0 if there is none.
func (r *recovery) applyDeletion(rec *segments.Record, at index.Extent, first uint32) {
	r.j.commit.next = max(r.j.commit.next, rec.Seq+1)
	t := r.deleted[rec.Key]
	if t == nil {
		t = &tombstone{}
		r.deleted[rec.Key] = t
	}
	if t.first = older(t.first, first); uint64(t.revision) <= rec.Seq {
		t.created, t.revision, t.birth, t.at = engine.LogID(rec.Log), engine.Revision(rec.Seq), rec.Count, at
	}
}

// older returns the lower of two segment numbers. 0 stands for no segment.
func older(a, b uint32) uint32 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// applyMark applies the newest mark of a log.
func (r *recovery) applyMark(rec *segments.Record, at index.Extent) {
	r.j.commit.next = max(r.j.commit.next, uint64(rec.Time)+1)
	r.log(rec.Log).mark = &mark{weir.Seq(rec.Seq), rec.Payload, at}
}

func (r *recovery) log(id uint64) *log {
	recent := &r.recent[id%uint64(len(r.recent))]
	if l := *recent; l != nil && l.id == engine.LogID(id) {
		return l // neighbouring entries often belong to the same logs
	}
	s := &r.j.store
	l := s.logs.Get(engine.LogID(id))
	if l == nil {
		l = &log{id: engine.LogID(id)}
		s.logs.Set(l.id, l)
		r.logs = append(r.logs, l)
	}
	*recent = l
	return l
}

// settle is step 8: decide which records are still needed, and count their bytes (the live bytes)
// for each segment.
func (r *recovery) settle() error {
	s := &r.j.store
	for key, t := range r.deleted {
		if t.first > 0 { // keep the deletion while an older state on disk could reappear
			s.deleted.Set(key, t)
			s.keep(t.at)
		}
	}
	switch t := r.tail; {
	case t == nil:
	case t.Sealed.Load():
		t.Slots = nil
	case r.Final || t.Number < r.j.dir.End.Latest.Segment: // the writer had moved on, but the next segment has no group yet
		t.next = r.j.write.next
		r.rebuilt = append(r.rebuilt, t)
	default:
		r.j.commit.active, r.j.write.active = t, t
		r.j.write.synced = t.End
	}
	return nil
}

// adopt removes the logs without a document from the store, and counts the live bytes of the others.
// The parameter owned is the number of logs with a document. It visits the logs in the order in
// which they were found, because they mostly lie in memory in that order. In the order of the
// documents' keys, a million logs would take several times as long.
func (r *recovery) adopt(owned int) {
	s := &r.j.store
	orphan := func(engine.LogID) bool { return false }
	if owned < len(r.logs) {
		owners := map[engine.LogID]bool{}
		for _, c := range s.docs.Chosen(engine.Everything) {
			owners[c.Created] = true
		}
		orphan = func(id engine.LogID) bool { return !owners[id] }
	}
	for _, l := range r.logs {
		if orphan(l.id) {
			s.logs.Delete(l.id)
			continue
		}
		if m := l.mark; m != nil {
			l.index.Cut(m.low)
			s.keep(m.at)
		}
		s.account(&l.index, 1)
	}
}

// confirm is step 9: make durable what recovery found, before any caller can read it. A killed
// process may have left a complete group, the index of a segment or a file name that was never
// synced. A sync alone is not enough: after a failed sync the kernel may consider the unsynced
// pages clean and never write them. So the newest bytes are written again and then synced. All
// older bytes were synced before the newest were written.
func (r *recovery) confirm() error {
	if err := r.j.dir.FS.SyncDir(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(r.rewriteEnd(), r.rebuild()); err != nil {
		return err
	}
	if all := r.j.store.allSegments(); len(all) > 1 { // a killed process may have left an index that was never synced
		if err := all[len(all)-2].File.SyncData(); err != nil {
			return fmt.Errorf("sync %s: %w", all[len(all)-2].Name, err)
		}
	}
	return r.j.dir.Restate(r.ending())
}

// rewriteEnd writes the newest bytes again and syncs them.
func (r *recovery) rewriteEnd() error {
	s := r.tail
	if s == nil || r.Marked {
		return nil
	}
	end := r.j.dir.Size
	if !s.Sealed.Load() {
		end = s.End
	}
	b := make([]byte, end-r.Newest)
	if err := s.Read(b, r.Newest); err != nil {
		return err
	}
	if err := directory.WriteSynced(s.File, r.Newest, b); err != nil {
		return fmt.Errorf("rewrite the end of %s: %w", s.Name, err)
	}
	return nil
}

// closeFiles closes all segment files and removes them from the journal, so that they are not
// closed twice.
func (r *recovery) closeFiles() {
	for _, s := range r.segments {
		s.File.Close()
	}
	r.j.store.segments = nil
	r.j.prepare.ready, r.j.prepare.dead, r.j.prepare.packed = nil, nil, nil
}
