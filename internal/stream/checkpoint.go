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
//	byte     1 or 2, the version: 2 if keys follow
//	byte     flags: 1 something was stored, 2 sequence 0 was stored
//	uvarint  cursor
//	uvarint  low
//	varint   time of the batch at the cursor
//	varint   time of the newest entry
//
// Version 2 also holds the remembered idempotency keys of trimmed batches (D25), oldest first,
// about 20 bytes each:
//
//	uvarint  number of keys
//	16 bytes digest                                   } for
//	uvarint  sequence, minus that of the previous key } each
//	uvarint  time, minus that of the previous key     } key;
//	uvarint  number of events                         } the first time is a varint
//
// A checkpoint holds no gaps. The missing sequences follow from the remaining entries, and the
// markers that closed gaps above low are among those entries.
type Checkpoint struct {
	ever, zero   bool
	cursor, low  weir.Seq
	stored, last weir.Time
	keys         queue // of trimmed batches
}

const (
	noteVersion = 1
	noteKeys    = 2

	noteEver = 1
	noteZero = 2
)

var errNote = errors.New("checkpoint is damaged")

// Checkpoint returns the checkpoint that must be stored, as a note, together with a trim of
// everything below Low. Restore needs the note. The keys in it come from ahead, which is s itself
// or the state that s was forked from.
func (s *State) Checkpoint(ahead *State) Checkpoint {
	return Checkpoint{s.ever, s.zero, s.cursor, s.low, s.stored, s.last, ahead.keys.queue.head(ahead.keys.evicted(s.low))}
}

// Low returns the sequence below which everything is to be trimmed.
func (c *Checkpoint) Low() weir.Seq { return c.low }

// NoteSize returns about how many bytes the encoded checkpoint of s has. ahead has the same meaning
// as in Checkpoint.
func NoteSize(s, ahead *State) int { return noteSize(ahead.keys.evicted(s.low)) }

func noteSize(keys int) int { return 40 + 24*keys }

// Encode returns the note. With 100,000 keys it takes milliseconds. It may therefore run while
// other goroutines use the states that the checkpoint was taken from.
func (c *Checkpoint) Encode() []byte {
	version, flags := byte(noteVersion), byte(0)
	if c.ever {
		flags |= noteEver
	}
	if c.zero {
		flags |= noteZero
	}
	n := c.keys.len()
	if n > 0 {
		version = noteKeys
	}
	b := append(make([]byte, 0, noteSize(n)), version, flags)
	b = binary.AppendUvarint(b, uint64(c.cursor))
	b = binary.AppendUvarint(b, uint64(c.low))
	b = binary.AppendVarint(b, int64(c.stored))
	b = binary.AppendVarint(b, int64(c.last))
	if n == 0 {
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
	return b
}

// load copies an encoded checkpoint into a state fresh from New.
func (s *State) load(note []byte) error {
	if len(note) < 2 {
		return errNote
	}
	if note[0] != noteVersion && note[0] != noteKeys {
		return fmt.Errorf("checkpoint has version %d, but this program reads versions %d and %d", note[0], noteVersion, noteKeys)
	}
	flags, d := note[1], decoder{b: note[2:]}
	s.ever, s.zero = flags&noteEver != 0, flags&noteZero != 0
	s.cursor, s.low = weir.Seq(d.unsigned()), weir.Seq(d.unsigned())
	s.stored, s.last = weir.Time(d.signed()), weir.Time(d.signed())
	if note[0] == noteKeys {
		d.keys(s)
	}
	sound := !d.bad && len(d.b) == 0 && flags <= noteEver|noteZero && s.cursor <= weir.MaxSeq && s.low <= s.next() &&
		s.low >= s.base() && s.stored <= s.last
	if !s.ever {
		sound = sound && !s.zero && s.cursor == 0
	}
	if !sound {
		return errNote
	}
	return nil
}

// decoder reads the fields of a note. bad is set if one of them is cut off or impossible.
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

// keys reads the keys of trimmed batches into a state. The state finds them only after its keys
// were indexed.
func (d *decoder) keys(s *State) {
	n := d.unsigned()
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
		s.keys.queue.push(keyOf(&h))
		before = h
	}
}
