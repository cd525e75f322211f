package repair

import (
	"slices"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// state is what the records of a journal say. If several records describe the same document or the
// same trim, the one with the highest revision counts, wherever it is stored.
type state struct {
	next    uint64                     // next revision
	docs    map[string]*index.Document // by key
	first   map[string]bool            // keys of all documents with a readable state, current or not
	deleted map[string]*deletion       // newest deletions, by document key
	dropped map[uint64]string          // keys of all deleted documents, by their logs
	logs    map[uint64]*log
	last    *log // the log that was used last
}

// log is the content of one log.
type log struct {
	id       engine.LogID
	owned    bool // a document owns the log; set by settle
	index    index.Entries
	low      weir.Seq     // all entries below this sequence are trimmed
	note     []byte       // bytes that the last trim stored
	mark     index.Extent // position and size of the record that holds low and note
	revision int64        // revision of that record; 0 if there is none
}

// deletion is the record of a document's deletion.
type deletion struct {
	revision engine.Revision
	at       index.Place
}

func newState() state {
	return state{
		next: 1, docs: map[string]*index.Document{}, first: map[string]bool{}, deleted: map[string]*deletion{},
		dropped: map[uint64]string{}, logs: map[uint64]*log{},
	}
}

// apply applies a record.
func (s *state) apply(at index.Place, sl segments.Slot, r *segments.Record) {
	switch r.Kind {
	case segments.KindBatch, segments.KindGapClosed:
		s.log(sl.Log).index.Insert(index.Item{
			Seq: weir.Seq(sl.Seq), Time: weir.Time(sl.Time), Place: at, Size: sl.Size, Head: sl.Head,
			Kind: sl.Kind, Flags: sl.Flags, Keyed: sl.Keyed, Tag: sl.Tag,
		})
	case segments.KindMark:
		s.next = max(s.next, uint64(r.Time)+1)
		if l := s.log(r.Log); r.Time >= l.revision {
			l.low, l.note, l.revision = weir.Seq(r.Seq), slices.Clone(r.Payload), r.Time
			l.mark = index.Extent{Place: at, Bytes: r.Bytes()}
		}
	case segments.KindDocument:
		s.next = max(s.next, r.Seq+1)
		s.first[r.Key] = true
		if d := s.docs[r.Key]; d == nil || uint64(d.Revision) <= r.Seq {
			s.docs[r.Key] = &index.Document{At: index.Extent{Place: at, Bytes: r.Bytes()}, Document: engine.Document{
				Key: r.Key, Value: slices.Clone(r.Payload), Created: engine.LogID(r.Log), Revision: engine.Revision(r.Seq),
			}}
		}
	case segments.KindDeleted:
		s.next = max(s.next, r.Seq+1)
		s.dropped[r.Log] = r.Key
		if t := s.deleted[r.Key]; t == nil || uint64(t.revision) <= r.Seq {
			s.deleted[r.Key] = &deletion{engine.Revision(r.Seq), at}
		}
	}
}

// log returns the log with this id.
func (s *state) log(id uint64) *log {
	if s.last != nil && s.last.id == engine.LogID(id) {
		return s.last // neighbouring entries often belong to the same log
	}
	l := s.logs[id]
	if l == nil {
		l = &log{id: engine.LogID(id)}
		s.logs[id] = l
	}
	s.last = l
	return l
}

// settle removes deleted documents and trimmed entries.
func (s *state) settle() {
	for key, t := range s.deleted {
		if d := s.docs[key]; d != nil && d.Revision < t.revision {
			delete(s.docs, key)
		}
	}
	for _, d := range s.docs {
		if l := s.logs[uint64(d.Created)]; l != nil {
			l.owned = true
			l.index.Cut(l.low)
		}
	}
}

// current reports whether the record at this place is still needed. The deletion of a document is
// needed while an older state of the document could reappear.
func (s *state) current(at index.Place, r *segments.Record) bool {
	l := s.logs[r.Log]
	switch r.Kind {
	case segments.KindDocument:
		d := s.docs[r.Key]
		return d != nil && d.At.Place == at
	case segments.KindDeleted:
		t := s.deleted[r.Key]
		return t != nil && t.at == at && s.docs[r.Key] == nil && s.first[r.Key]
	case segments.KindMark:
		return l != nil && l.owned && l.mark.Place == at && l.mark.Bytes > 0
	case segments.KindBatch, segments.KindGapClosed:
		if l == nil || !l.owned {
			return false
		}
		it, ok := l.index.Find(weir.Seq(r.Seq))
		return ok && it.Place == at
	}
	return false
}
