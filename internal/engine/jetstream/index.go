package jetstream

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
)

// index says where the entries of a log are stored. The lock of its log guards it.
type index struct {
	entries []entry  // sorted by sequence
	removed int      // number of entries that were removed since the entries were last copied
	low     weir.Seq // the low mark: all entries below this sequence are trimmed
	note    uint64   // JetStream sequence of the message with the last trim, which holds the note for Judge.Restore; 0 if there was no trim
	floor   uint64   // all messages with a lower JetStream sequence were purged
}

// entry says where an entry is stored, and holds the fields that Headers returns.
type entry struct {
	seq      weir.Seq
	js       uint64
	position uint64
	time     weir.Time
	size     uint32
	parts    uint32
	offset   uint32
	keySize  uint16
	kind     engine.Kind
	flags    engine.Flags
}

// insert adds an entry. It returns false if the index already contains the sequence.
func (x *index) insert(r record.Record) bool {
	e := entry{r.Seq, r.At, r.Position, r.Time, r.Size, r.Parts, r.Offset, uint16(len(r.Key)), r.Kind, r.Flags}
	i := len(x.entries)
	if i > 0 && x.entries[i-1].seq >= e.seq {
		var found bool
		if i, found = x.find(e.seq); found {
			return false
		}
	}
	if e.seq >= x.low {
		x.entries = slices.Insert(x.entries, i, e)
	}
	return true
}

// empty removes all entries of a log that was dropped. It keeps what bottom() needs: a purge that
// was scheduled before must not remove the message that ends the log.
func (x *index) empty() { x.entries, x.removed = nil, 0 }

// cut raises the low mark and removes the entries below it.
func (x *index) cut(low weir.Seq) {
	x.low = max(x.low, low)
	i, _ := x.find(x.low)
	x.entries = x.entries[i:]
	// The array still holds the removed entries. If they are the larger part, a copy frees them.
	if x.removed += i; x.removed > len(x.entries) {
		x.pack()
	}
}

// pack makes the index take no more memory than its entries need.
func (x *index) pack() {
	if x.removed > 0 || cap(x.entries) > len(x.entries) {
		x.entries, x.removed = append(make([]entry, 0, len(x.entries)), x.entries...), 0
	}
}

// find returns the position in entries of the first entry with this sequence or a higher one. It
// also reports whether that entry has exactly this sequence.
func (x *index) find(seq weir.Seq) (int, bool) {
	return slices.BinarySearchFunc(x.entries, seq, func(e entry, seq weir.Seq) int { return cmp.Compare(e.seq, seq) })
}

// from returns the entries with this sequence or a higher one.
func (x *index) from(seq weir.Seq) []entry {
	i, _ := x.find(seq)
	return x.entries[i:]
}

// has reports whether the index contains the sequence.
func (x *index) has(seq weir.Seq) bool {
	_, found := x.find(seq)
	return found
}

// bottom returns the JetStream sequence of the oldest message that is still needed.
func (x *index) bottom() uint64 {
	floor := x.note // the message of the last trim is still needed, because it holds the note
	for i := range x.entries {
		floor = min(floor, x.entries[i].js)
	}
	return floor
}

// restored returns the headers of the entries, in the form that Judge.Restore receives. The given
// records have consecutive positions in the log. The judge does not need the keys of entries older
// than the time since.
func (x *index) restored(all []record.Record, since weir.Time) iter.Seq[*engine.Header] {
	return record.Restored(len(x.entries), since, func(i int) *engine.Header {
		return &all[x.entries[i].position-all[0].Position].Header
	})
}

// keysSince returns a time. The judge needs the keys only of entries that are not older.
func keysSince(judge engine.Judge) weir.Time {
	if f, ok := judge.(engine.Forgetful); ok {
		return f.KeysSince()
	}
	return math.MinInt64
}
