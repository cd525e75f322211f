package journal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"weir/internal/disk"
)

// Files of the journal other than segments.
const (
	lockFile      = "lock"
	formatFile    = "format"
	formatTmpFile = "format.tmp"
)

// formatVersion is the version of the format that this code writes. A directory with a higher
// version is refused. A journal of format 1 has no file "end", no salts in its segment headers and
// no bonds (checksums over all records) in the frames of its groups. Opening such a journal writes
// what the current format needs.
const formatVersion = 2

// identify is steps 1 to 3 of opening: decide whether the directory is a journal, take the lock,
// and read the format. identify turns an empty directory into a journal and then returns fresh =
// true.
func (j *Journal) identify() (fresh bool, err error) {
	known, err := j.known()
	if err != nil {
		return false, err
	}
	if j.lock, err = j.fs.Lock(lockFile); err != nil {
		if errors.Is(err, disk.ErrLocked) {
			return false, fmt.Errorf("the data directory is %w", disk.ErrLocked)
		}
		return false, fmt.Errorf("lock the data directory: %w", err)
	}
	if known {
		return false, nil
	}
	// Another process may have made the directory a journal, and used it, before the lock was taken.
	if known, err = j.known(); known || err != nil {
		return false, err
	}
	rand.Read(j.salt[:])
	if err := j.createEnd(ending{group: 1}); err != nil {
		return false, err
	}
	return true, j.writeFormat()
}

// known reports whether the directory is a journal, and reads its format. It returns ErrForeign if
// the directory is neither a journal nor empty.
func (j *Journal) known() (bool, error) {
	names, err := j.fs.List()
	if err != nil {
		return false, fmt.Errorf("list the data directory: %w", err)
	}
	if slices.Contains(names, formatFile) {
		return true, j.readFormat()
	}
	for _, name := range names {
		if !slices.Contains([]string{lockFile, formatTmpFile, endTmpFile}, name) && !(name == endFile && neverUsed(j.fs)) {
			return false, fmt.Errorf("%w: the directory contains %s but no file %s", ErrForeign, name, formatFile)
		}
	}
	return false, nil
}

// neverUsed reports whether the file "end" says that no segment was ever used. This happens if a
// crash came after "end" was created and before the format file was.
func neverUsed(fs disk.FS) bool {
	e, _, _, ok := anyEnd(fs)
	return ok && e.segment == 0
}

// anyEnd reads a valid slot of the file "end" without knowing the salt.
func anyEnd(fs disk.FS) (e ending, salt [8]byte, size int64, ok bool) {
	f, err := fs.Open(endFile)
	if err != nil {
		return e, salt, 0, false
	}
	defer f.Close()
	newest := uint64(0)
	for off := int64(0); off < endSize; off += endBlock {
		b := make([]byte, endSlot)
		if n, _ := f.ReadAt(b, off); n < len(b) {
			continue
		}
		if found, of, bytes, count, valid := decodeEnding(b); valid && count > newest {
			e, salt, size, ok, newest = found, of, bytes, true, count
		}
	}
	return e, salt, size, ok
}

// salvageFormat finds the salt and the segment size if the format file is lost. The file "end" and
// the header of every segment hold copies of both.
func (j *Journal) salvageFormat() bool {
	e, salt, size, ok := anyEnd(j.fs)
	names, err := j.fs.List()
	if err != nil || slices.Contains(names, restoringFile) || ok && e.segment == 0 { // never used
		return false
	}
	for _, name := range names {
		if _, segment := segmentNumber(name); ok || !segment {
			continue
		}
		if f, err := j.fs.Open(name); err == nil {
			b := make([]byte, headerSize)
			if n, _ := f.ReadAt(b, 0); n == len(b) {
				salt, size, ok = saltOf(b)
			}
			f.Close()
		}
	}
	if ok = ok && validSize(size); ok {
		j.salt, j.size, j.version = salt, size, formatVersion
		j.commit.init(j)
	}
	return ok
}

func validSize(size int64) bool {
	return size >= minSegment && size <= maxSegment && size%dataStart == 0
}

// readFormat reads the format file, for example:
//
//	weir journal 2
//	segment 67108864
//	salt 5f1c0a9e4b7d2836
//	check 8d2f01aa
func (j *Journal) readFormat() error {
	f, err := j.fs.Open(formatFile)
	if err != nil {
		return fmt.Errorf("open %s: %w", formatFile, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("read %s: %w", formatFile, err)
	}
	b := make([]byte, min(size, 4096))
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return fmt.Errorf("read %s: %w", formatFile, err)
	}
	return j.parseFormat(string(b))
}

// parseFormat checks the version first, because the other lines of a newer format may look
// different.
func (j *Journal) parseFormat(text string) error {
	first, rest, _ := strings.Cut(text, "\n")
	v, ok := strings.CutPrefix(first, "weir journal ")
	version, err := strconv.Atoi(v)
	if !ok || err != nil {
		return fmt.Errorf("%w: %s begins with %q", ErrForeign, formatFile, first)
	}
	body, check, _ := strings.Cut(rest, "check ")
	if version > formatVersion {
		return fmt.Errorf("%w: format %d, this version supports up to %d", ErrNewer, version, formatVersion)
	}
	var salt string
	_, err = fmt.Sscanf(body, "segment %d\nsalt %s\n", &j.size, &salt)
	raw, bad := hex.DecodeString(salt)
	if err != nil || bad != nil || len(raw) != len(j.salt) || !validSize(j.size) ||
		check != formatCheck(first+"\n"+body) {
		return &DamageError{File: formatFile, What: "journal format", Err: errChecksum}
	}
	copy(j.salt[:], raw)
	j.version = version
	j.commit.init(j) // the committer's reserve depends on the segment size
	return nil
}

func formatCheck(text string) string { return fmt.Sprintf("%08x\n", sum(0, []byte(text))) }

// formatText returns the content of the format file. It always states the current format, because
// other files may already contain parts of the current format.
func (j *Journal) formatText() string {
	text := fmt.Sprintf("weir journal %d\nsegment %d\nsalt %x\n", formatVersion, j.size, j.salt)
	return text + "check " + formatCheck(text)
}

// writeFormat writes the format file. With this file an empty directory becomes a journal.
func (j *Journal) writeFormat() error {
	j.version = formatVersion
	err := j.replace(formatFile, formatTmpFile, []byte(j.formatText()))
	if err != nil {
		return fmt.Errorf("create %s: %w", formatFile, err)
	}
	return nil
}

// replace writes a small file atomically: after a crash it has its full content or does not exist.
// When replace returns nil, the file is durable.
func (j *Journal) replace(name, tmp string, content []byte) error {
	if err := j.fs.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := j.fs.Create(tmp)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.WriteAt(0, content); err != nil {
		return err
	}
	if err := f.SyncData(); err != nil {
		return err
	}
	if err := j.fs.Rename(tmp, name); err != nil {
		return err
	}
	return j.fs.SyncDir()
}
