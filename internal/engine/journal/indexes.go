package journal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// state says where the newest record of a document is, or the newest mark of a log. (A mark is the
// record of a trim.) The indexes of the segments hold this information. Older records are not read,
// so damage to them does no harm.
type state struct {
	at       index.Place
	size     uint32
	head     uint16
	kind     segments.Kind
	first    uint32 // segment with the oldest record of a document; 0 if only the deletion of the document was found
	log      uint64
	seq      uint64
	revision uint64
}

// states has the newest states of all marks or of all documents.
type states struct {
	rising []state // states of logs that were found in increasing order
	rest   []state
	of     map[uint64]int32 // for each of the other logs, the position of its state in the field rest
}

// found has the newest states of all marks and documents, read from disk.
type found struct {
	docs []index.ByKey // the documents, in the order of their keys
	rest []foundState
	err  error
}

// foundState is the record of a mark or of a deletion. A mark holds a note, the bytes that the trim
// stored. If the note is longer than keptNote, it is left out here.
type foundState struct {
	at    index.Extent
	rec   segments.Record
	first uint32 // the same as state.first
}

// readIndexes is step 7 of opening (see DESIGN.md): read the index of every segment, in order, and
// then the newest state of every mark and document. Three goroutines share the work: one reads the
// indexes, the caller's goroutine puts the entries into memory, and the third chooses and reads the
// states.
func (r *recovery) readIndexes() (err error) {
	all := r.j.store.allSegments()
	read, slots, done := make(chan loadedIndex, 1), make(chan loadedIndex, len(all)), make(chan found)
	go r.load(all, read)
	go func() { done <- r.readStates(slots) }()
	for x := range read { // receive everything, even after an error, so that load ends
		if err == nil {
			err = r.readEntries(&x)
			slots <- x
		}
	}
	close(slots)
	f := <-done
	if err = cmp.Or(err, f.err); err != nil {
		return err
	}
	for i := range f.rest {
		st := &f.rest[i]
		if st.rec.Kind == segments.KindMark {
			r.applyMark(&st.rec, st.at)
			continue
		}
		r.applyDeletion(&st.rec, st.at, st.first)
	}
	r.keepDocuments(f.docs)
	return nil
}

// loadedIndex holds the slots of a segment, or the error of reading them.
type loadedIndex struct {
	seg   *segment
	slots []byte
	err   error
}

func (r *recovery) load(all []*segment, into chan<- loadedIndex) {
	defer close(into)
	for _, s := range all {
		x := loadedIndex{seg: s, slots: s.Slots}
		if s != r.tail {
			x.slots, x.err = s.Index()
		}
		into <- x
	}
}

// readEntries puts the entries of a segment into memory. If the index cannot be read, it builds the
// index first.
func (r *recovery) readEntries(x *loadedIndex) error {
	if x.err != nil {
		if x.slots, x.err = r.rebuildIndex(x.seg, x.err); x.err != nil {
			return x.err
		}
	}
	if x.seg != r.tail {
		x.seg.Sealed.Store(true)
	}
	for b := x.slots; len(b) > 0; b = b[segments.SlotSize:] {
		switch sl := segments.DecodeSlot(b); sl.Kind {
		case segments.KindBatch, segments.KindGapClosed:
			r.insert(index.Place{Segment: uint32(x.seg.Number), Off: sl.Off}, sl)
		case segments.KindManifest, segments.KindMark, segments.KindDocument, segments.KindDeleted:
		default:
			return x.seg.Damage(int64(sl.Off), "record", fmt.Errorf("unknown kind %d", sl.Kind))
		}
	}
	return nil
}

// add keeps the state that a slot (an element of a segment's index) describes, unless a newer state
// of the same log is known. A copy made by the reclaimer has the same revision as its original; add
// keeps the copy.
func (s *states) add(at index.Place, sl segments.Slot, revision uint64) {
	st := state{at: at, size: sl.Size, head: sl.Head, kind: sl.Kind, log: sl.Log, seq: sl.Seq, revision: revision}
	if sl.Kind == segments.KindDocument {
		st.first = at.Segment
	}
	old := s.find(sl.Log)
	if old == nil {
		s.keep(st)
		return
	}
	first := cmp.Or(old.first, st.first)
	if revision >= old.revision {
		*old = st
	}
	old.first = first
}

// find returns the state of a log, or nil if none is known.
func (s *states) find(log uint64) *state {
	n := len(s.rising)
	if n == 0 || s.rising[n-1].log < log {
		return nil
	}
	if i, ok := s.of[log]; ok {
		return &s.rest[i]
	}
	i, ok := slices.BinarySearchFunc(s.rising, log, func(st state, log uint64) int { return cmp.Compare(st.log, log) })
	if !ok {
		return nil
	}
	return &s.rising[i]
}

// keep adds the first state of a log. Documents are mostly found in the order of their creation, so
// a million of them need no map.
func (s *states) keep(st state) {
	if n := len(s.rising); n == 0 || s.rising[n-1].log < st.log {
		s.rising = append(s.rising, st)
		return
	}
	s.of[st.log] = int32(len(s.rest))
	s.rest = append(s.rest, st)
}

// readStates chooses the newest states from the slots of all segments, and reads them in the order
// of their positions on disk. If only few bytes lie between two states, one read covers both.
func (r *recovery) readStates(indexes <-chan loadedIndex) (f found) {
	marks, docs := states{of: map[uint64]int32{}}, states{of: map[uint64]int32{}}
	for x := range indexes {
		for b := x.slots; len(b) > 0; b = b[segments.SlotSize:] {
			switch sl, number := segments.DecodeSlot(b), uint32(x.seg.Number); sl.Kind {
			case segments.KindMark:
				marks.add(index.Place{Segment: number, Off: sl.Off}, sl, uint64(sl.Time))
			case segments.KindDocument, segments.KindDeleted:
				docs.add(index.Place{Segment: number, Off: sl.Off}, sl, sl.Seq)
			}
		}
	}
	all := slices.Concat(marks.rising, marks.rest, docs.rising, docs.rest)
	slices.SortFunc(all, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.at.Segment, b.at.Segment), cmp.Compare(a.at.Off, b.at.Off))
	})
	f.docs = make([]index.ByKey, 0, len(docs.rising)+len(docs.rest))
	w := &segments.Window{}
	for i := range all {
		st := &all[i]
		at := index.Extent{Place: st.at, Bytes: int64(segments.Padded(int(st.head)+int(st.size)) + segments.SlotSize)}
		if st.kind == segments.KindMark && st.size > keptNote { // the slot holds everything but the note, which is read when the log is opened
			rec := segments.Record{Kind: segments.KindMark, Log: st.log, Seq: st.seq, Time: int64(st.revision)}
			f.rest = append(f.rest, foundState{at: at, rec: rec})
			continue
		}
		if s := r.segments[uint64(st.at.Segment)]; w.Seg != &s.Segment {
			w = &segments.Window{Seg: &s.Segment, Buf: w.Buf[:0]}
		}
		if n := int64(st.head) + int64(st.size); !w.Holds(int64(st.at.Off), n) {
			w.Ahead = together(all[i:])
		}
		rec, err := w.Record(segments.Slot{Off: st.at.Off, Size: st.size, Head: st.head, Kind: st.kind, Log: st.log, Seq: st.seq})
		if err != nil {
			return found{err: err}
		}
		if st.kind == segments.KindDocument {
			d := index.Document{At: at, First: st.first}
			d.Created, d.Revision = engine.LogID(rec.Log), engine.Revision(rec.Seq)
			f.docs = append(f.docs, r.j.store.docs.Pack(rec.Key, rec.Payload, &d).ByKey())
			continue
		}
		rec.Payload = slices.Clone(rec.Payload) // the window reuses its buffer
		f.rest = append(f.rest, foundState{at, rec, st.first})
	}
	f.docs = index.SortByKey(f.docs)
	return f
}

// together returns the length of a read that covers the first state in the list and the states that
// follow it closely.
func together(all []state) int64 {
	from := &all[0]
	n := int64(from.head) + int64(from.size)
	for i := range all[1:] {
		next := &all[1+i]
		far := int64(next.at.Off) - int64(from.at.Off)
		if next.at.Segment != from.at.Segment || far > n+shortGap || far > segments.WindowSize {
			break
		}
		n = far + int64(next.head) + int64(next.size)
	}
	return n
}

// keepDocuments puts documents into the store, unless a later deletion is known. Of several
// documents with the same key it keeps the newest, which replaced the others.
func (r *recovery) keepDocuments(sorted []index.ByKey) {
	s, owned := &r.j.store, 0
	for i := 0; i < len(sorted); {
		c := sorted[i].Doc
		for i++; i < len(sorted) && sorted[i].Doc.Name() == c.Name(); i++ {
			older := sorted[i].Doc
			if older.Revision() > c.Revision() {
				c, older = older, c
			}
			c.First = min(c.First, older.First)
		}
		r.j.commit.next = max(r.j.commit.next, uint64(c.Revision())+1)
		if t := r.deleted[c.Name()]; t != nil {
			if t.first = older(t.first, c.First); t.revision > c.Revision() {
				continue // the method settle keeps the deletion
			}
			c.First = t.first
			delete(r.deleted, c.Name())
		}
		s.docs.Load(c)
		if _, found := s.logs.Lookup(c.Created); found {
			owned++
		} else {
			s.logs.Set(c.Created, nil)
		}
		s.keep(c.Extent())
		s.revision = max(s.revision, c.Revision())
	}
	r.adopt(owned)
}

// shortGap is the largest number of bytes between two states for which one read covers both.
const shortGap = 16 << 10

// rebuildIndex returns the slots of a sealed segment whose index cannot be read. If the index or
// the footer is damaged but all groups of the segment (the records of one write each) are valid,
// rebuildIndex builds the slots from the groups, and the method confirm later writes the index
// again.
func (r *recovery) rebuildIndex(s *segment, damage error) ([]byte, error) {
	if !errors.Is(damage, engine.ErrDamaged) {
		return nil, damage
	}
	end, err := s.ProvedEnd()
	if err != nil || end == 0 {
		return nil, errors.Join(damage, err)
	}
	x, err := s.Scan()
	if s.next = x.Next; err != nil || s.End != end {
		return nil, errors.Join(damage, err)
	}
	if s.Packed() == nil { // compressed segments never change
		r.rebuilt = append(r.rebuilt, s)
	}
	return s.Slots, nil
}

// rebuild seals the segments in the field rebuilt: it writes their indexes and footers.
func (r *recovery) rebuild() error {
	for _, s := range r.rebuilt {
		if err := s.Seal(s.next, nil); err != nil {
			return err
		}
	}
	return nil
}
