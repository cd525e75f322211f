package journal

import (
	"maps"
	"slices"
	"sync"

	"github.com/tidwall/btree"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
	"weir/internal/shrink"
)

// store is the state of the journal in memory: the documents, their logs and the segments. The
// writer applies a change to it once the change is durable. The committer, which decides on changes
// before they are durable, only adds segments and marks logs whose document is being deleted (see
// doom).
type store struct {
	mu       sync.RWMutex
	docs     index.Documents
	logs     shrink.Map[engine.LogID, *log] // by Document.Created; the value is nil until the log is first used
	segments map[uint32]*segment
	deleted  btree.Map[string, *tombstone] // by document key
	unneeded bool                          // a segment was removed, so some tombstones may not be needed any more
	revision engine.Revision               // revision of the last document change since the journal was opened
}

// tombstone describes the record of a document's deletion. The record is needed while any segment
// may still hold an older record of the document or its log: without the tombstone, the document
// would reappear after a restart.
type tombstone struct {
	created  engine.LogID
	revision engine.Revision
	first    uint32 // number of the oldest segment that may hold an older record
	birth    uint32 // number of the newest segment that may hold an older record
	at       index.Extent
}

// needed reports whether any of the given segments may hold a record that is older than the
// tombstone. The segment numbers must be sorted.
func (t *tombstone) needed(segments []uint32) bool {
	i, _ := slices.BinarySearch(segments, t.first)
	return i < len(segments) && segments[i] <= t.birth
}

func (s *store) init() {
	s.docs.Init()
	s.segments = make(map[uint32]*segment)
}

func (s *store) document(key string) *index.Document {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d, _ := s.docs.Get(key)
	return d
}

// put stores a document in place of the previous document or tombstone with the same key.
func (s *store) put(d *index.Document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.First == 0 {
		d.First = d.At.Segment
	}
	if t, ok := s.deleted.Delete(d.Key); ok {
		d.First = t.first
		s.drop(t.at)
	}
	if old, ok := s.docs.Set(d); ok {
		s.drop(old)
	}
	if _, ok := s.logs.Lookup(d.Created); !ok {
		s.logs.Set(d.Created, nil)
	}
	s.keep(d.At)
	s.revision = max(s.revision, d.Revision)
}

// remove deletes a document and stores its tombstone. It subtracts the live bytes at the current
// place of the document's record: the reclaimer may have copied the record since the deletion was
// decided.
func (s *store) remove(key string, t *tombstone) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.docs.Delete(key); ok {
		t.first = d.First
		s.drop(d.At)
	}
	s.logs.Delete(t.created)
	s.deleted.Set(key, t)
	s.keep(t.at)
	s.revision = max(s.revision, t.revision)
}

// chosen returns the documents that the prefixes select, in order of their revisions, and the
// revision of the last change.
func (s *store) chosen(of engine.Prefixes) (docs []*index.Compact, revision engine.Revision) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.docs.Chosen(of), s.revision
}

// keep adds the bytes of a record to the live bytes of its segment, and drop subtracts them. Live
// bytes are the bytes of records that are still needed.
func (s *store) keep(e index.Extent) { s.segments[e.Segment].live.Add(e.Bytes) }
func (s *store) drop(e index.Extent) {
	if seg := s.segments[e.Segment]; seg != nil && e.Bytes > 0 {
		seg.live.Add(-e.Bytes)
	}
}

// account adds the bytes of all entries in an index to the live bytes of their segments (sign 1),
// or subtracts them (sign -1). It takes the lock only to look up a segment, because an index can
// have millions of entries. A segment is not freed before the bytes of all its entries are
// subtracted.
func (s *store) account(x *index.Entries, sign int64) {
	seg, at, bytes := (*segment)(nil), uint32(0), int64(0)
	flush := func() {
		if seg != nil {
			seg.live.Add(sign * bytes)
		}
	}
	x.Ascend(0, func(it index.Item) bool {
		if it.Place.Segment != at {
			flush()
			seg, at, bytes = s.segment(it.Place.Segment), it.Place.Segment, 0
		}
		bytes += it.Bytes()
		return true
	})
	flush()
}

func (s *store) segment(number uint32) *segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.segments[number]
}

func (s *store) addSegment(seg *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segments[uint32(seg.Number)] = seg
}

// removeSegment removes a freed segment.
func (s *store) removeSegment(seg *segment) {
	s.mu.Lock()
	delete(s.segments, uint32(seg.Number))
	s.unneeded = true
	s.mu.Unlock()
	seg.release()
}

// dropTombstones removes the tombstones that are not needed for any of the remaining segments, if a
// segment was removed since the last call. There may be millions of tombstones, so dropTombstones
// releases the lock for a moment whenever it has visited tombstonesAtOnce of them.
func (s *store) dropTombstones() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unneeded {
		return
	}
	left, again := slices.Sorted(maps.Keys(s.segments)), true
	s.unneeded = false
	for from := ""; again; {
		var gone []string
		n := 0
		again = false
		s.deleted.Ascend(from, func(key string, t *tombstone) bool {
			if from, again = key, n == tombstonesAtOnce; again {
				return false
			}
			if n++; !t.needed(left) {
				gone = append(gone, key)
			}
			return true
		})
		for _, key := range gone {
			t, _ := s.deleted.Delete(key)
			s.drop(t.at)
		}
		s.mu.Unlock()
		engine.Yield() // without this call, this goroutine would often take the lock again before the writer gets it
		s.mu.Lock()
	}
}

// tombstonesAtOnce is the number of tombstones that dropTombstones visits while it holds the lock.
const tombstonesAtOnce = 256

// allSegments returns all segments in the order of their numbers.
func (s *store) allSegments() []*segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*segment, 0, len(s.segments))
	for _, seg := range s.segments {
		all = append(all, seg)
	}
	slices.SortFunc(all, func(a, b *segment) int { return int(int64(a.Number) - int64(b.Number)) })
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
	return s.logs.Get(id)
}

// doom marks a log as doomed: its document is being deleted, so opening the log or appending to it
// fails from now on. If the store has no such log yet, doom creates it, because a caller may try to
// open the log before the deletion is settled, and even before the creation of the document is
// settled. doom returns the log and its handle, which is nil if the log is not open. The committer
// calls doom. If the deletion cannot be written, log.spare undoes what doom did.
func (s *store) doom(id engine.LogID) (*log, *handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logs.Get(id)
	if l == nil {
		l = &log{id: id}
		s.logs.Set(id, l)
	}
	return l, l.attached.Swap(doomed)
}

// current reports whether the record at this place will still be needed when all groups in flight
// are settled. The reclaimer must not copy a record that one of those groups trims, replaces or
// deletes. The copy would come after the record of that change in the journal, and might still
// exist when the record of the change has been reclaimed.
func (g *group) current(at index.Place, r *segments.Record) bool {
	switch r.Kind {
	case segments.KindDocument:
		d := g.document(r.Key)
		return d != nil && d.At.Place == at
	case segments.KindDeleted:
		if g.document(r.Key) != nil {
			return false
		}
	default:
		if l := g.j.store.log(engine.LogID(r.Log)); l == nil || l.attached.Load() == doomed {
			return false
		}
	}
	return g.j.store.current(at, r)
}

// current reports whether the state in memory refers to the record at this place.
func (s *store) current(at index.Place, r *segments.Record) bool {
	switch r.Kind {
	case segments.KindDocument, segments.KindDeleted:
		s.mu.RLock()
		defer s.mu.RUnlock()
		if r.Kind == segments.KindDeleted {
			t, ok := s.deleted.Get(r.Key)
			return ok && t.at.Place == at
		}
		d, ok := s.docs.Get(r.Key)
		return ok && d.At.Place == at
	case segments.KindBatch, segments.KindGapClosed, segments.KindMark:
		l := s.log(engine.LogID(r.Log))
		return l != nil && l.current(at, r)
	}
	return false
}

func (l *log) current(at index.Place, r *segments.Record) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if r.Kind == segments.KindMark {
		return l.mark != nil && l.mark.at.Place == at
	}
	it, ok := l.index.Find(weir.Seq(r.Seq))
	return ok && it.Place == at
}

// move makes the state in memory refer to the copy of a record, unless an op of the same group made
// the record unneeded. It adds the live bytes at the new place first, and subtracts them at the old
// place last. So the old segment is not freed while readers can still find it through the index.
func (s *store) move(r *segments.Record, from, to index.Place) {
	if !s.current(from, r) {
		return
	}
	bytes := r.Bytes()
	s.segment(to.Segment).live.Add(bytes)
	switch r.Kind {
	case segments.KindDocument:
		s.mu.Lock()
		d, _ := s.docs.Get(r.Key)
		d.At.Place = to
		s.docs.Set(d)
		s.mu.Unlock()
	case segments.KindDeleted:
		s.mu.Lock()
		t, _ := s.deleted.Get(r.Key)
		t.at.Place = to
		s.mu.Unlock()
	default:
		s.log(engine.LogID(r.Log)).move(r, from, to)
	}
	s.segment(from.Segment).live.Add(-bytes)
}

// move makes the log refer to the copy of a mark or of an entry. It returns false if the index does
// not refer to the original of the entry any more.
func (l *log) move(r *segments.Record, from, to index.Place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Kind == segments.KindMark {
		l.mark.at.Place = to
		return true
	}
	it, ok := l.index.Find(weir.Seq(r.Seq))
	if ok = ok && it.Place == from; ok {
		it.Place = to
		l.index.Insert(it)
	}
	return ok
}
