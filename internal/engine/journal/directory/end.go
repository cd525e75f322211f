package directory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"weir/internal/disk"
	"weir/internal/engine/journal/segments"
)

// Proof is the open file "end" and the content of its newest slot. A slot holds a position that the
// log has certainly reached. The file has two slots, and each write replaces the older one. While
// the journal runs, only the writer uses the proof.
type Proof struct {
	file disk.File
	endRecord
}

// ReadEnd reads and opens the file "end". It returns engine.ErrDamaged if the file is missing, if
// neither slot is valid, or if the file belongs to another journal. A journal of format 1 has no such
// file.
func (d *Directory) ReadEnd() error {
	if d.Version < 2 {
		return nil
	}
	p, err := loadEnd(d.FS)
	if err == nil && (p.salt != d.Salt || p.size != d.Size) {
		err = &segments.DamageError{File: EndFile, What: "end of the log", Err: errors.New("belongs to another journal")}
	}
	if err != nil {
		return err
	}
	p.file, err = d.FS.Open(EndFile)
	d.End = p
	return err
}

// loadEnd reads the newest valid slot of the file "end".
func loadEnd(dir disk.FS) (p Proof, err error) {
	f, err := dir.Open(EndFile)
	if errors.Is(err, fs.ErrNotExist) {
		return p, &segments.DamageError{File: EndFile, What: "end of the log", Err: segments.ErrMissing}
	}
	if err != nil {
		return p, fmt.Errorf("open %s: %w", EndFile, err)
	}
	defer f.Close()
	fault := segments.ErrChecksum
	for off := int64(0); off < endSize; off += endBlock {
		b := make([]byte, endSlot)
		if n, err := f.ReadAt(b, off); n < len(b) {
			fault = err
		} else if found, ok := decodeEnd(b); ok && found.Count > p.Count {
			p.endRecord = found
		}
	}
	if p.Count == 0 {
		err = &segments.DamageError{File: EndFile, What: "end of the log", Err: fault}
	}
	return p, err
}

// CreateEnd writes a new file "end" in place of the old one and opens the new file.
func (d *Directory) CreateEnd(e Ending) error {
	d.CloseEnd()
	next := d.after(e)
	d.Version = formatVersion
	b := make([]byte, endSize)
	copy(b, next.encode())
	if next.Count%2 == 1 {
		b = append(b[endBlock:], b[:endBlock]...) // swap the slots: WriteEnd uses the second slot for an odd count
	}
	if err := d.Replace(EndFile, b); err != nil {
		return fmt.Errorf("create %s: %w", EndFile, err)
	}
	return d.ReadEnd()
}

// CloseEnd closes the file "end" if it is open.
func (d *Directory) CloseEnd() {
	if d.End.file != nil {
		d.End.file.Close()
		d.End.file = nil
	}
}

// WriteEnd records in the file "end" that the log reached the position e. The caller syncs the file.
func (d *Directory) WriteEnd(e Ending) error {
	next := d.after(e)
	if err := d.End.file.WriteAt(int64(next.Count%2)*endBlock, next.encode()); err != nil {
		return fmt.Errorf("write %s: %w", EndFile, err)
	}
	d.End.endRecord = next // only after a successful write, so that a failed write is repeated in the same slot
	return nil
}

// after returns the content of the next slot.
func (d *Directory) after(e Ending) endRecord {
	return endRecord{Count: d.End.Count + 1, Latest: e, salt: d.Salt, size: d.Size}
}

// SyncEnd syncs the file "end".
func (d *Directory) SyncEnd() error {
	if err := d.End.file.SyncData(); err != nil {
		return fmt.Errorf("sync %s: %w", EndFile, err)
	}
	return nil
}

// Restate records the end of the log that recovery found. It also turns a journal of an older
// format into one of the current format. For a journal of format 1, the file "end" is created before
// the format file changes, because later formats require "end".
func (d *Directory) Restate(found Ending) error {
	if d.Version < 2 {
		if err := d.CreateEnd(found); err != nil {
			return err
		}
		return d.WriteFormat()
	}
	if d.Version < d.needed() {
		if err := d.WriteFormat(); err != nil {
			return err
		}
	}
	if err := d.rewriteEnd(); err != nil {
		return err
	}
	if found == d.End.Latest || found.Segment < d.End.Latest.Segment { // "end" may already name the next segment, before its first group
		return nil
	}
	if err := d.WriteEnd(found); err != nil {
		return err
	}
	return d.SyncEnd()
}

// rewriteEnd writes the newest slot of the file "end" once more, and syncs it. If a sync has failed
// before, the slot may be in the page cache only. Then the disk could have no valid slot after the
// next write, which replaces the other one. Without space, the file stays as it is.
func (d *Directory) rewriteEnd() error {
	err := d.End.file.WriteAt(int64(d.End.Count%2)*endBlock, d.End.encode())
	if disk.IsShortage(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", EndFile, err)
	}
	return d.SyncEnd()
}

// Ending is a position up to which the journal is known to be written. More groups may follow it.
type Ending struct {
	Segment uint64 // the newest segment that may hold a group; 0 if there is none
	Offset  int64  // everything below this offset of that segment was synced
	Group   uint64 // number of the next group
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
	binary.LittleEndian.PutUint64(b[24:], r.Count)
	binary.LittleEndian.PutUint64(b[32:], r.Latest.Segment)
	binary.LittleEndian.PutUint64(b[40:], uint64(r.Latest.Offset))
	binary.LittleEndian.PutUint64(b[48:], r.Latest.Group)
	binary.LittleEndian.PutUint32(b, segments.Sum(0, b[4:]))
	return b
}

// endRecord is the content of a slot of the file "end".
type endRecord struct {
	Count  uint64 // each write adds 1
	Latest Ending
	salt   [8]byte // salt of the journal to which the file belongs
	size   int64   // segment size of that journal
}

// decodeEnd returns the content of a slot of the file "end". The checksum of the slot is not seeded,
// so that the slot can be read without knowing the salt.
func decodeEnd(b []byte) (r endRecord, ok bool) {
	r = endRecord{
		size: int64(binary.LittleEndian.Uint64(b[16:])), Count: binary.LittleEndian.Uint64(b[24:]),
		Latest: Ending{binary.LittleEndian.Uint64(b[32:]), int64(binary.LittleEndian.Uint64(b[40:])), binary.LittleEndian.Uint64(b[48:])},
	}
	copy(r.salt[:], b[8:])
	return r, binary.LittleEndian.Uint32(b[4:]) == endMagic && binary.LittleEndian.Uint32(b) == segments.Sum(0, b[4:endSlot])
}
