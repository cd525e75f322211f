package stream

import (
	"encoding/binary"
	"errors"
	"fmt"

	"weir"
)

// Checkpoint records the parts of a state that cannot be derived from the remaining entries once
// older entries were trimmed from the log. Its encoded form is called a note:
//
//	byte     1 to 3, the version: 2 if keys follow, 3 if keys and writers follow
//	byte     flags: 1 something was stored, 2 sequence 0 was stored, 4 the stream was closed
//	uvarint  cursor
//	uvarint  low
//	varint   time of the batch at the cursor
//	varint   time of the newest entry
//
// Version 2 also holds the remembered idempotency keys of trimmed batches (D25), oldest first,
// about 20 bytes each:
//
//	uvarint  number of keys
//	then for each key:
//	16 bytes digest
//	uvarint  sequence, minus that of the previous key
//	uvarint  time, minus that of the previous key; for the first key, the time as a varint
//	uvarint  number of events
//
// Version 3 also holds the producers and the last order mark (writers.go):
//
//	uvarint  number of producers
//	then for each producer, in the order of their last batches, the oldest first:
//	text     name: its length as a uvarint, and its bytes
//	uvarint  epoch of its last batch
//	uvarint  number of its last batch
//	varint   time of its last batch
//	text     the last order mark, after all producers
//
// A checkpoint holds no gaps. The missing sequences follow from the remaining entries, and the
// markers that closed gaps above low are among those entries.
type Checkpoint struct {
	ever, zero   bool
	ended        bool
	cursor, low  weir.Seq
	stored, last weir.Time
	keys         queue // the keys of trimmed batches
	wrote        writers
}

const (
	noteVersion = 1
	noteKeys    = 2
	noteWriters = 3

	noteEver = 1
	noteZero = 2
	noteEnds = 4
)

var errNote = errors.New("checkpoint is damaged")

// Checkpoint returns the checkpoint that must be stored, as a note, together with a trim of
// everything below Low. Restore needs the note. The keys in it come from the parameter original,
// which is s itself or the state that s was forked from.
func (s *State) Checkpoint(original *State) Checkpoint {
	return Checkpoint{s.ever, s.zero, s.ended, s.cursor, s.low, s.stored, s.last,
		original.keys.below(s.low), s.wrote.clone()}
}

// Low returns the sequence below which everything is to be trimmed.
func (c *Checkpoint) Low() weir.Seq { return c.low }

// NoteSize returns about how many bytes the encoded checkpoint of s has. The parameter original has
// the same meaning as in Checkpoint.
func NoteSize(s, original *State) int {
	return noteSize(original.keys.evicted(s.low)) + s.wrote.size()
}

func noteSize(keys int) int { return 40 + 24*keys }

// Encode returns the note. With 100,000 keys it takes milliseconds. Other goroutines may use the
// states that the checkpoint was taken from while Encode runs.
func (c *Checkpoint) Encode() []byte {
	version, flags := byte(noteVersion), byte(0)
	if c.ever {
		flags |= noteEver
	}
	if c.zero {
		flags |= noteZero
	}
	if c.ended {
		flags |= noteEnds
	}
	n := c.keys.len()
	if n > 0 {
		version = noteKeys
	}
	if !c.wrote.empty() {
		version = noteWriters
	}
	b := append(make([]byte, 0, noteSize(n)), version, flags)
	b = binary.AppendUvarint(b, uint64(c.cursor))
	b = binary.AppendUvarint(b, uint64(c.low))
	b = binary.AppendVarint(b, int64(c.stored))
	b = binary.AppendVarint(b, int64(c.last))
	if version == noteVersion {
		return b
	}
	b = binary.AppendUvarint(b, uint64(n))
	seq, time := weir.Seq(0), weir.Time(0)
	for i := range n {
		k := c.keys.index(i)
		b = append(b, k.digest[:]...)
		b = binary.AppendUvarint(b, uint64(k.seq()-seq))
		if i == 0 {
			b = binary.AppendVarint(b, int64(k.time()))
		} else {
			b = binary.AppendUvarint(b, uint64(k.time()-time))
		}
		b = binary.AppendUvarint(b, uint64(k.count()))
		seq, time = k.seq(), k.time()
	}
	if version == noteWriters {
		b = c.wrote.encode(b)
	}
	return b
}

// LowOf returns the sequence below which everything was trimmed when the note was stored.
func LowOf(note []byte) (weir.Seq, error) {
	if len(note) < 2 || note[0] < noteVersion || note[0] > noteWriters {
		return 0, errNote
	}
	d := decoder{b: note[2:]}
	d.unsigned() // the cursor
	low := weir.Seq(d.unsigned())
	if d.bad {
		return 0, errNote
	}
	return low, nil
}

// load copies an encoded checkpoint into s, which must be a new state that New returned.
func (s *State) load(note []byte) error {
	if len(note) < 2 {
		return errNote
	}
	if note[0] < noteVersion || note[0] > noteWriters {
		return fmt.Errorf("checkpoint has version %d, but this program reads versions %d to %d", note[0], noteVersion, noteWriters)
	}
	flags, d := note[1], decoder{b: note[2:]}
	s.ever, s.zero, s.ended = flags&noteEver != 0, flags&noteZero != 0, flags&noteEnds != 0
	s.cursor, s.low = weir.Seq(d.unsigned()), weir.Seq(d.unsigned())
	s.stored, s.last = weir.Time(d.signed()), weir.Time(d.signed())
	if note[0] >= noteKeys {
		d.keys(s, note[0] == noteKeys)
	}
	if note[0] == noteWriters {
		w := d.writers()
		s.wrote = &w
	}
	sound := !d.bad && len(d.b) == 0 && flags <= noteEver|noteZero|noteEnds && s.cursor <= weir.MaxSeq && s.low <= s.next() &&
		s.low >= s.base() && s.stored <= s.last
	if !s.ever {
		sound = sound && !s.zero && s.cursor == 0
	}
	if !sound {
		return errNote
	}
	return nil
}

// decoder reads the fields of a note. The field bad is set if a field of the note is incomplete or
// has an impossible value.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) unsigned() uint64 {
	v, n := binary.Uvarint(d.b)
	d.skip(n)
	return v
}

func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.b)
	d.skip(n)
	return v
}

func (d *decoder) skip(n int) {
	if n <= 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return
	}
	d.b = d.b[n:]
}

// keys reads the keys of trimmed batches into s. They cannot be found until s.keys.index is called.
// If the parameter some is true, the note must have at least one key.
func (d *decoder) keys(s *State, some bool) {
	n := d.unsigned()
	if n == 0 && !some {
		return
	}
	const least = len(digest{}) + 3
	if n == 0 || n > uint64(len(d.b)/least) {
		d.bad = true
		return
	}
	var h, before Header
	for i := range n {
		if len(d.b) < least {
			d.bad = true
			return
		}
		h.Key = digest(d.b)
		d.skip(len(h.Key))
		h.Seq += weir.Seq(d.unsigned())
		if i == 0 {
			h.Time = weir.Time(d.signed())
		} else {
			h.Time += weir.Time(d.unsigned())
		}
		h.Count = uint32(d.unsigned())
		if h.Seq >= s.low || i > 0 && (h.Seq <= before.Seq || h.Time < before.Time) {
			d.bad = true
			return
		}
		keysOf(s).collect(&h)
		before = h
	}
}
