package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"weir/internal/disk"
	"weir/internal/engine/journal/segments"
)

// endFile is the name of the file that proves how far the log reached at least. Without this file,
// a journal that lost its newest segment, or the newest groups in it (a group is the records of one
// write), would look like an undamaged older journal.
const (
	endFile    = "end"
	endTmpFile = "end.tmp"
)

// proof is the file "end" and the content of its newest slot. The file has two slots, and each write
// replaces the older one. While the journal runs, only the writer uses the proof.
type proof struct {
	file disk.File
	endRecord
}

// readEnd reads and opens the file "end". It returns engine.ErrDamaged if neither slot is valid or
// the file is missing. A journal of format 1 has no such file.
func (j *Journal) readEnd() error {
	if j.version < 2 {
		return nil
	}
	p, err := loadEnd(j.fs)
	if err == nil && (p.salt != j.salt || p.size != j.size) {
		err = &DamageError{File: endFile, What: "end of the log", Err: errors.New("belongs to another journal")}
	}
	if err != nil {
		return err
	}
	p.file, err = j.fs.Open(endFile)
	j.end = p
	return err
}

// loadEnd reads the newest valid slot of the file "end".
func loadEnd(dir disk.FS) (p proof, err error) {
	f, err := dir.Open(endFile)
	if errors.Is(err, fs.ErrNotExist) {
		return p, &DamageError{File: endFile, What: "end of the log", Err: errMissing}
	}
	if err != nil {
		return p, fmt.Errorf("open %s: %w", endFile, err)
	}
	defer f.Close()
	fault := segments.ErrChecksum
	for off := int64(0); off < endSize; off += endBlock {
		b := make([]byte, endSlot)
		if n, err := f.ReadAt(b, off); n < len(b) {
			fault = err
		} else if found, ok := decodeEnd(b); ok && found.count > p.count {
			p.endRecord = found
		}
	}
	if p.count == 0 {
		err = &DamageError{File: endFile, What: "end of the log", Err: fault}
	}
	return p, err
}

// createEnd writes a new file "end" in place of the old one and opens the new file.
func (j *Journal) createEnd(e ending) error {
	if j.end.file != nil {
		j.end.file.Close()
		j.end.file = nil
	}
	next := j.end.after(j, e)
	j.version = formatVersion
	b := make([]byte, endSize)
	copy(b, next.encode())
	if next.count%2 == 1 {
		b = append(b[endBlock:], b[:endBlock]...) // swap the slots: the method write uses the second slot for an odd count
	}
	if err := j.replace(endFile, endTmpFile, b); err != nil {
		return fmt.Errorf("create %s: %w", endFile, err)
	}
	return j.readEnd()
}

// write records in the file "end" that the log reached the position e. The caller syncs the file.
func (p *proof) write(j *Journal, e ending) error {
	next := p.after(j, e)
	if err := p.file.WriteAt(int64(next.count%2)*endBlock, next.encode()); err != nil {
		return fmt.Errorf("write %s: %w", endFile, err)
	}
	p.endRecord = next // only after a successful write, so that a failed write is repeated in the same slot
	return nil
}

// after returns the content of the next slot.
func (p *proof) after(j *Journal, e ending) endRecord {
	return endRecord{count: p.count + 1, latest: e, salt: j.salt, size: j.size}
}

func (p *proof) sync() error {
	if err := p.file.SyncData(); err != nil {
		return fmt.Errorf("sync %s: %w", endFile, err)
	}
	return nil
}

// settle syncs the file. It then writes the position to the other slot too and syncs again, so that
// one damaged slot does not hide the loss of the newest groups. If there is no space, the other
// slot stays as it is.
func (p *proof) settle(j *Journal) error {
	if err := p.sync(); err != nil {
		return err
	}
	if err := p.write(j, p.latest); err != nil {
		if isShortage(err) {
			return nil
		}
		return err
	}
	return p.sync()
}

// restate records the end of the log that recovery found. It also turns a journal of an older
// format into one of the current format. For a journal of format 1, the file "end" is created before
// the format file changes, because later formats require "end".
func (j *Journal) restate(found ending) error {
	if j.version < 2 {
		if err := j.createEnd(found); err != nil {
			return err
		}
		return j.writeFormat()
	}
	if j.version < formatVersion {
		if err := j.writeFormat(); err != nil {
			return err
		}
	}
	if found == j.end.latest || found.segment < j.end.latest.segment { // "end" may already name the next segment, before its first group
		return nil
	}
	if err := j.end.write(j, found); err != nil {
		return err
	}
	return j.end.sync()
}

// ending is a position up to which the journal is known to be written. More groups may follow it.
type ending struct {
	segment uint64 // the newest segment that may hold a group; 0 if there is none
	offset  int64  // everything below this offset of that segment was synced
	group   uint64 // number of the next group
}

// The file "end" holds two slots, each in a block of its own. Each write replaces the older of the
// two slots, so an interrupted write leaves the newer slot intact.
const (
	endMagic = 0x544c4557 // "WELT"
	endSlot  = 64
	endBlock = 4096
	endSize  = 2 * endBlock
)

func (r *endRecord) encode() []byte {
	b := make([]byte, endSlot)
	binary.LittleEndian.PutUint32(b[4:], endMagic)
	copy(b[8:], r.salt[:])
	binary.LittleEndian.PutUint64(b[16:], uint64(r.size))
	binary.LittleEndian.PutUint64(b[24:], r.count)
	binary.LittleEndian.PutUint64(b[32:], r.latest.segment)
	binary.LittleEndian.PutUint64(b[40:], uint64(r.latest.offset))
	binary.LittleEndian.PutUint64(b[48:], r.latest.group)
	binary.LittleEndian.PutUint32(b, segments.Sum(0, b[4:]))
	return b
}

// endRecord is the content of a slot of the file "end".
type endRecord struct {
	count  uint64 // each write adds 1
	latest ending
	salt   [8]byte // salt of the journal to which the file belongs
	size   int64   // segment size of that journal
}

// decodeEnd returns the content of a slot of the file "end". The checksum of the slot is not seeded,
// so that the slot can be read without knowing the salt.
func decodeEnd(b []byte) (r endRecord, ok bool) {
	r = endRecord{
		size: int64(binary.LittleEndian.Uint64(b[16:])), count: binary.LittleEndian.Uint64(b[24:]),
		latest: ending{binary.LittleEndian.Uint64(b[32:]), int64(binary.LittleEndian.Uint64(b[40:])), binary.LittleEndian.Uint64(b[48:])},
	}
	copy(r.salt[:], b[8:])
	return r, binary.LittleEndian.Uint32(b[4:]) == endMagic && binary.LittleEndian.Uint32(b) == segments.Sum(0, b[4:endSlot])
}
