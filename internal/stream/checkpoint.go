package stream

import (
	"encoding/binary"
	"errors"
	"fmt"

	"weir"
)

// A checkpoint records what can no longer be derived from the kept entries after older ones were
// trimmed:
//
//	byte     1, the version
//	byte     flags: 1 something was stored, 2 sequence 0 was stored
//	uvarint  cursor
//	uvarint  low
//	varint   time of the batch at the cursor
//	varint   time of the newest entry
//
// It holds no gaps: missing sequences follow from the kept entries, and the markers that closed
// gaps above low are kept entries themselves.
const (
	noteVersion = 1

	noteEver = 1
	noteZero = 2
)

var errNote = errors.New("checkpoint is damaged")

// Checkpoint returns the note that must be stored together with a trim of everything below Low.
// Restore needs it.
func (s *State) Checkpoint() []byte {
	var flags byte
	if s.ever {
		flags |= noteEver
	}
	if s.zero {
		flags |= noteZero
	}
	b := append(make([]byte, 0, 40), noteVersion, flags)
	b = binary.AppendUvarint(b, uint64(s.cursor))
	b = binary.AppendUvarint(b, uint64(s.low))
	b = binary.AppendVarint(b, int64(s.stored))
	return binary.AppendVarint(b, int64(s.last))
}

// load copies a checkpoint into a state fresh from New.
func (s *State) load(note []byte) error {
	if len(note) < 2 {
		return errNote
	}
	if note[0] != noteVersion {
		return fmt.Errorf("checkpoint has version %d, but this program reads version %d", note[0], noteVersion)
	}
	flags, rest := note[1], note[2:]
	var marks [2]uint64
	for i := range marks {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return errNote
		}
		marks[i], rest = v, rest[n:]
	}
	var times [2]int64
	for i := range times {
		v, n := binary.Varint(rest)
		if n <= 0 {
			return errNote
		}
		times[i], rest = v, rest[n:]
	}
	if len(rest) != 0 {
		return errNote
	}
	s.ever, s.zero = flags&noteEver != 0, flags&noteZero != 0
	s.cursor, s.low = weir.Seq(marks[0]), weir.Seq(marks[1])
	s.stored, s.last = weir.Time(times[0]), weir.Time(times[1])
	sound := flags <= noteEver|noteZero && s.cursor <= weir.MaxSeq && s.low <= s.next() &&
		s.low >= s.base() && s.stored <= s.last
	if !s.ever {
		sound = sound && !s.zero && s.cursor == 0
	}
	if !sound {
		return errNote
	}
	return nil
}
