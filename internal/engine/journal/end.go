package journal

import (
	"errors"
	"fmt"
	"io/fs"

	"weir/internal/disk"
)

// endFile is the name of the file that proves how far the log reached at least. Without this file,
// a journal that lost its newest segment, or the newest groups in it (a group is the records of one
// write), would look like an undamaged older journal.
const (
	endFile    = "end"
	endTmpFile = "end.tmp"
)

// proof is the content of the file "end", which proves how far the log reached. The file has two
// slots, and each write replaces the older one. While the journal runs, only the writer uses the
// proof.
type proof struct {
	file   disk.File
	count  uint64 // count of the newest slot; each write adds 1
	latest ending
	salt   [8]byte // salt of the journal to which the file belongs
	size   int64   // segment size of that journal
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
	fault := errChecksum
	for off := int64(0); off < endSize; off += endBlock {
		b := make([]byte, endSlot)
		if n, err := f.ReadAt(b, off); n < len(b) {
			fault = err
		} else if found, ok := decodeEnding(b); ok && found.count > p.count {
			p = found
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
	j.end.count++
	j.version = formatVersion
	b := make([]byte, endSize)
	copy(b, e.encode(j.salt, j.size, j.end.count))
	if j.end.count%2 == 1 {
		b = append(b[endBlock:], b[:endBlock]...) // swap the slots: the method write uses the second slot for an odd count
	}
	if err := j.replace(endFile, endTmpFile, b); err != nil {
		return fmt.Errorf("create %s: %w", endFile, err)
	}
	return j.readEnd()
}

// write records in the file "end" that the log reached the position e. The caller syncs the file.
func (p *proof) write(j *Journal, e ending) error {
	next := p.count + 1 // p.count changes only after a successful write, so a failed write is repeated in the same slot
	if err := p.file.WriteAt(int64(next%2)*endBlock, e.encode(j.salt, j.size, next)); err != nil {
		return fmt.Errorf("write %s: %w", endFile, err)
	}
	p.latest, p.count = e, next
	return nil
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
