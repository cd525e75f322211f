package journal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"weir"
	"weir/internal/engine"
)

// state is the position and size of the newest record of a mark or a document, found in the index
// slots. (A mark is the record of a log's last trim.) Older records are not read, so damage to them
// does no harm.
type state struct {
	at       place
	size     uint32
	head     uint16
	kind     kind
	first    uint32 // segment with the oldest record of a document; 0 if only the deletion of the document was found
	log      uint64
	seq      uint64
	revision uint64
}

// readIndexes is step 7: read the index of every segment, in order, and then the newest state of
// every mark and document.
func (r *recovery) readIndexes() error {
	marks, docs := map[uint64]state{}, map[uint64]state{}
	for _, s := range r.j.store.allSegments() {
		slots := s.slots
		if s != r.tail {
			var err error
			if slots, err = r.readIndex(s); err != nil {
				return err
			}
			s.sealed.Store(true)
		}
		for ; len(slots) > 0; slots = slots[slotSize:] {
			sl := decodeSlot(slots)
			at := place{uint32(s.number), sl.off}
			switch sl.kind {
			case kindBatch, kindGapClosed:
				r.insert(at, sl)
			case kindManifest:
			case kindMark:
				newer(marks, at, sl, uint64(sl.time))
			case kindDocument, kindDeleted:
				newer(docs, at, sl, sl.seq)
			default:
				return s.damage(int64(sl.off), "record", fmt.Errorf("unknown kind %d", sl.kind))
			}
		}
	}
	return r.readStates(marks, docs)
}

// newer keeps the state in a slot unless a newer state of the same log is known. A copy made by the
// reclaimer has the same revision as its original; newer keeps the copy.
func newer(states map[uint64]state, at place, sl slot, revision uint64) {
	old := states[sl.log]
	first := old.first
	if first == 0 && sl.kind == kindDocument {
		first = at.segment
	}
	if revision >= old.revision {
		old = state{at: at, size: sl.size, head: sl.head, kind: sl.kind, log: sl.log, seq: sl.seq, revision: revision}
	}
	old.first = first
	states[sl.log] = old
}

// readStates reads and applies states in the order of their positions on disk. If only few bytes
// lie between two states, one read covers both.
func (r *recovery) readStates(marks, docs map[uint64]state) error {
	all := make([]state, 0, len(marks)+len(docs))
	for _, st := range marks {
		all = append(all, st)
	}
	for _, st := range docs {
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.at.segment, b.at.segment), cmp.Compare(a.at.off, b.at.off))
	})
	w := &window{}
	for i, st := range all {
		if r.lazy && st.kind == kindMark && st.size > keptNote { // the slot holds everything but the note
			bytes := int64(padded(int(st.head)+int(st.size)) + slotSize)
			r.applyMark(st.log, int64(st.revision), weir.Seq(st.seq), nil, extent{st.at, bytes})
			continue
		}
		if s := r.segments[uint64(st.at.segment)]; w.seg != s {
			w = &window{seg: s, buf: w.buf[:0]}
		}
		if n := int64(st.head) + int64(st.size); !w.holds(int64(st.at.off), n) {
			w.ahead = n
			for _, next := range all[i+1:] {
				far := int64(next.at.off) - int64(st.at.off)
				if next.at.segment != st.at.segment || far > w.ahead+shortGap || far > windowSize {
					break
				}
				w.ahead = far + int64(next.head) + int64(next.size)
			}
		}
		rec, err := w.record(slot{off: st.at.off, size: st.size, head: st.head, kind: st.kind, log: st.log, seq: st.seq})
		if err != nil {
			return err
		}
		r.applyRecord(st.at, &rec)
		if old, ok := r.first[rec.key]; st.first > 0 && (!ok || st.first < old) {
			r.first[rec.key] = st.first
		}
	}
	return nil
}

// shortGap is the largest number of bytes between two states for which one read covers both.
const shortGap = 16 << 10

// readIndex returns the slots of a sealed segment. If the index or the footer is damaged but all
// groups of the segment are valid, readIndex builds the slots from the groups, and confirm later
// writes the index again.
func (r *recovery) readIndex(s *segment) ([]byte, error) {
	slots, damage := s.index(r.j.size)
	if damage == nil || !errors.Is(damage, engine.ErrDamaged) {
		return slots, damage
	}
	end, err := s.provedEnd(r.j.size)
	if err != nil || end == 0 {
		return nil, errors.Join(damage, err)
	}
	tail := *r // a copy, because scan stores the end of the tail in it, and this segment is not the tail
	next := r.j.write.next
	err = tail.scan(s)
	s.next, r.j.write.next = r.j.write.next, next
	if err != nil || s.end != end {
		return nil, errors.Join(damage, err)
	}
	s.used = s.end - dataStart + int64(s.count)*slotSize
	r.rebuilt = append(r.rebuilt, s)
	return s.slots, nil
}

// provedEnd returns the offset where the groups of a sealed segment end. The footer and the final
// watermark both hold this offset. provedEnd returns 0 if neither is valid.
func (s *segment) provedEnd(size int64) (int64, error) {
	f, ok, err := s.footer(size)
	if err != nil || ok {
		return f.end, err
	}
	b := make([]byte, dataStart)
	if err := s.read(b, 0); err != nil || b[32] != headerVersion {
		return 0, err
	}
	end, _ := decodeWatermark(b[watermarkOffset:], s.seed)
	return end, nil
}

// rebuild writes the indexes that were built from groups.
func (r *recovery) rebuild() error {
	for _, s := range r.rebuilt {
		if err := s.seal(r.j.size, s.next, once); err != nil {
			return err
		}
	}
	return nil
}
