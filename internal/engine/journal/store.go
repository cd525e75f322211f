package journal

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/tidwall/btree"

	"weir"
	"weir/internal/engine"
)

// store is the in-memory state: the documents, their logs and the segments. The writer changes it
// once the disk is up to date. The committer only adds segments and marks logs as doomed.
type store struct {
	mu       sync.RWMutex
	docs     btree.Map[string, *document]
	logs     map[engine.LogID]*log // one per document, by Created; nil until it is first used
	segments map[uint32]*segment
	deleted  map[string]*tombstone // by key
	revision engine.Revision       // of the last document change since the journal was opened
}

// document is the current state of a key and the place of its record. It owns the log that is named
// by its Created.
type document struct {
	engine.Document
	at    extent
	first uint32 // the oldest segment that may hold a state of the key
}

// extent is the place of a record and the bytes it takes in its segment, including its slot.
type extent struct {
	place
	bytes int64
}

// tombstone is the record of a deletion. It is needed while any segment may still hold an older
// state of the key, which would otherwise reappear after a restart. Those are the segments from
// first to birth, where birth is the segment that the tombstone was first written to.
type tombstone struct {
	created  engine.LogID
	revision engine.Revision
	first    uint32
	birth    uint32
	at       extent
}

// needed reports whether any of the segments may hold an older state. The segment numbers must be
// sorted.
func (t *tombstone) needed(segments []uint32) bool {
	i, _ := slices.BinarySearch(segments, t.first)
	return i < len(segments) && segments[i] <= t.birth
}

func (s *store) init() {
	s.logs = make(map[engine.LogID]*log)
	s.segments = make(map[uint32]*segment)
	s.deleted = make(map[string]*tombstone)
}

func (s *store) document(key string) *document {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d, _ := s.docs.Get(key)
	return d
}

// put sets the state of a key and drops the previous state or tombstone.
func (s *store) put(d *document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.first == 0 {
		d.first = d.at.segment
	}
	if old, ok := s.docs.Set(d.Key, d); ok {
		d.first = old.first
		s.drop(old.at)
	}
	if t, ok := s.deleted[d.Key]; ok {
		d.first = t.first
		s.drop(t.at)
		delete(s.deleted, d.Key)
	}
	if _, ok := s.logs[d.Created]; !ok {
		s.logs[d.Created] = nil
	}
	s.keep(d.at)
	s.revision = max(s.revision, d.Revision)
}

// remove deletes a document and stores its tombstone. It drops the document's current place, not
// the place it had when the deletion was decided, because a copy may have moved it in between.
func (s *store) remove(key string, t *tombstone) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.docs.Delete(key); ok {
		t.first = d.first
		s.drop(d.at)
	}
	delete(s.logs, t.created)
	s.deleted[key] = t
	s.keep(t.at)
	s.revision = max(s.revision, t.revision)
}

// everything returns all documents in order of revisions, and the revision of the last change.
func (s *store) everything() (docs []engine.Document, revision engine.Revision) {
	s.mu.RLock()
	s.docs.Scan(func(_ string, d *document) bool {
		docs = append(docs, d.Document)
		return true
	})
	revision = s.revision
	s.mu.RUnlock()
	slices.SortFunc(docs, func(a, b engine.Document) int { return cmp.Compare(a.Revision, b.Revision) })
	return docs, revision
}

// keep and drop add and subtract the live bytes of a segment.
func (s *store) keep(e extent) { s.segments[e.segment].live.Add(e.bytes) }
func (s *store) drop(e extent) {
	if seg := s.segments[e.segment]; seg != nil && e.bytes > 0 {
		seg.live.Add(-e.bytes)
	}
}

// account adds (sign 1) or subtracts (sign -1) the bytes of all entries in an index.
func (s *store) account(x *index, sign int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range x.chunks {
		for i := range c.items {
			it := c.item(i)
			if seg := s.segments[it.place.segment]; seg != nil {
				seg.live.Add(sign * it.bytes())
			}
		}
	}
}

func (s *store) segment(number uint32) *segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.segments[number]
}

func (s *store) addSegment(seg *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segments[uint32(seg.number)] = seg
}

// removeSegment removes a freed segment, and with it the tombstones that no remaining segment
// needs.
func (s *store) removeSegment(seg *segment) {
	s.mu.Lock()
	delete(s.segments, uint32(seg.number))
	left := slices.Sorted(maps.Keys(s.segments))
	for key, t := range s.deleted {
		if !t.needed(left) {
			s.drop(t.at)
			delete(s.deleted, key)
		}
	}
	s.mu.Unlock()
	seg.release()
}

// allSegments returns all segments in the order of their numbers.
func (s *store) allSegments() []*segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*segment, 0, len(s.segments))
	for _, seg := range s.segments {
		all = append(all, seg)
	}
	slices.SortFunc(all, func(a, b *segment) int { return int(int64(a.number) - int64(b.number)) })
	return all
}

func (s *store) segmentCount() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.segments)
}

// log returns the log with this id, or nil if there is none.
func (s *store) log(id engine.LogID) *log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.logs[id]
}

// doom marks the log of a document whose deletion is being committed, so that attaching or
// appending to it fails. It creates the log if there is none, because a caller may open the log
// before the deletion is settled, even if the creation of the document is not settled either. The
// committer calls it.
func (s *store) doom(j *Journal, id engine.LogID) *log {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logs[id]
	if l == nil {
		l = &log{j: j, id: id}
		s.logs[id] = l
	}
	l.doomed = true
	return l
}

// current reports whether the record at this place will still be needed when all groups in flight
// are settled. A record that those groups trim, replace or delete must not be copied: the copy
// would lie behind the record that removed it and might outlive that record.
func (g *group) current(at place, r *record) bool {
	switch r.kind {
	case kindDocument:
		d := g.document(r.key)
		return d != nil && d.at.place == at
	case kindDeleted:
		if g.document(r.key) != nil {
			return false
		}
	default:
		if l := g.j.store.log(engine.LogID(r.log)); l == nil || l.doomed {
			return false
		}
	}
	return g.j.store.current(at, r)
}

// current reports whether memory points to the record at this place.
func (s *store) current(at place, r *record) bool {
	switch r.kind {
	case kindDocument, kindDeleted:
		s.mu.RLock()
		defer s.mu.RUnlock()
		if r.kind == kindDeleted {
			t, ok := s.deleted[r.key]
			return ok && t.at.place == at
		}
		d, ok := s.docs.Get(r.key)
		return ok && d.at.place == at
	case kindBatch, kindGapClosed, kindMark:
		l := s.log(engine.LogID(r.log))
		return l != nil && l.current(at, r)
	}
	return false
}

func (l *log) current(at place, r *record) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if r.kind == kindMark {
		return l.mark.place == at && l.mark.bytes > 0
	}
	it, ok := l.index.find(weir.Seq(r.seq))
	return ok && it.place == at
}

// move points memory to the copy of a record, unless the record was dropped in the same group. The
// live bytes are added at the new place before they are subtracted at the old one, so the old
// segment is not freed while readers can still find it through the index.
func (s *store) move(r *record, from, to place) {
	if !s.current(from, r) {
		return
	}
	bytes := r.bytes()
	s.segment(to.segment).live.Add(bytes)
	switch r.kind {
	case kindDocument:
		s.mu.Lock()
		d, _ := s.docs.Get(r.key)
		moved := *d // readers hold the old value without a lock, so it must not change
		moved.at.place = to
		s.docs.Set(r.key, &moved)
		s.mu.Unlock()
	case kindDeleted:
		s.mu.Lock()
		s.deleted[r.key].at.place = to
		s.mu.Unlock()
	default:
		s.log(engine.LogID(r.log)).move(r, to)
	}
	s.segment(from.segment).live.Add(-bytes)
}

func (l *log) move(r *record, to place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.kind == kindMark {
		l.mark.place = to
		return
	}
	it, _ := l.index.find(weir.Seq(r.seq))
	it.place = to
	l.index.insert(it)
}
