package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

// Files of the journal other than segments.
const (
	lockFile      = "lock"
	formatFile    = "format"
	formatTmpFile = "format.tmp"
)

// formatVersion is the version of the format that this code writes. A directory with a higher
// version is refused. A journal of format 1 has no file "end", no salts in its segment headers and
// no bonds (checksums over all records) in the heads of its groups. Opening such a journal writes
// what the current format needs. Since format 3, an entry may have the flag engine.Ends, which an
// older program would ignore.
const formatVersion = 3

// directory is the directory of a journal and what its format file says.
type directory struct {
	fs      disk.FS
	size    int64 // size of each segment
	salt    [8]byte
	version int // version of the format
}

// identify is steps 1 to 3 of opening a journal (see DESIGN.md): decide whether the directory is a
// journal, take the lock, and read the format. identify turns an empty directory into a journal and
// then returns fresh = true.
func (j *Journal) identify() (fresh bool, err error) {
	if _, err := j.known(); err != nil {
		return false, err
	}
	if err := j.take(); err != nil {
		return false, err
	}
	// Another process may have changed the directory before the lock was taken.
	if known, err := j.known(); known || err != nil {
		return false, err
	}
	rand.Read(j.salt[:])
	if err := j.createEnd(ending{group: 1}); err != nil {
		return false, err
	}
	return true, j.writeFormat()
}

// take takes the lock of the directory. If a repair or a restore was interrupted after its result
// was complete, take then installs that result.
func (j *Journal) take() (err error) {
	if j.lock, err = j.fs.Lock(lockFile); err != nil {
		if errors.Is(err, disk.ErrLocked) {
			return fmt.Errorf("the data directory is %w", disk.ErrLocked)
		}
		return fmt.Errorf("lock the data directory: %w", err)
	}
	return disk.Install(j.fs)
}

// known reports whether the directory is a journal, and reads its format. It returns ErrForeign if
// the directory is neither a journal nor empty.
func (d *directory) known() (bool, error) {
	names, err := d.list()
	if disk.Installing(names) || err != nil {
		return true, err // the method take will install a journal
	}
	if slices.Contains(names, formatFile) {
		return true, d.readFormat()
	}
	for _, name := range names {
		if !slices.Contains([]string{lockFile, formatTmpFile, endTmpFile}, name) && !(name == endFile && d.neverUsed()) {
			return false, fmt.Errorf("%w: the directory contains %s but no file %s", ErrForeign, name, formatFile)
		}
	}
	return false, nil
}

func (d *directory) list() ([]string, error) {
	names, err := d.fs.List()
	if err != nil {
		return nil, fmt.Errorf("list the data directory: %w", err)
	}
	return names, nil
}

// neverUsed reports whether the file "end" says that no segment was ever used. The file says so if
// a crash came after "end" was created and before the format file was created.
func (d *directory) neverUsed() bool {
	p, err := loadEnd(d.fs)
	return err == nil && p.latest.segment == 0
}

// findFormat reads the format of a journal that may be damaged. If the format file is unusable but
// another file holds a copy of its content, findFormat succeeds, and the result fault says what is
// wrong with the format file.
func (d *directory) findFormat() (fault, err error) {
	names, err := d.list()
	if disk.Installing(names) || err != nil {
		return nil, err
	}
	fault = fmt.Errorf("%w: file %s is missing", ErrForeign, formatFile)
	if slices.Contains(names, formatFile) {
		fault = d.readFormat()
	}
	if fault != nil && (!unusable(fault) || !d.salvageFormat(names)) {
		return nil, fault
	}
	return fault, nil
}

// unusable reports whether err means that the content of a file cannot be used. After any other
// error, another attempt may succeed.
func unusable(err error) bool {
	return errors.Is(err, engine.ErrDamaged) || errors.Is(err, ErrForeign) || errors.Is(err, syscall.EIO)
}

// salvageFormat finds the salt and the segment size if the format file is lost. The file "end" and
// the header of every segment hold copies of both.
func (d *directory) salvageFormat(names []string) bool {
	p, err := loadEnd(d.fs)
	ok := err == nil && p.latest.segment > 0
	for _, name := range names {
		if _, segment := segments.NumberOf(name); err == nil || ok || !segment {
			continue
		}
		if f, err := d.fs.Open(name); err == nil {
			p.salt, p.size, ok = segments.SaltOf(f)
			f.Close()
		}
	}
	if ok = ok && validSize(p.size); ok {
		d.salt, d.size, d.version = p.salt, p.size, formatVersion
	}
	return ok
}

func validSize(size int64) bool {
	return size >= minSegment && size <= maxSegment && size%segments.DataStart == 0
}

// readFormat reads the format file, for example:
//
//	weir journal 3
//	segment 67108864
//	salt 5f1c0a9e4b7d2836
//	check 8d2f01aa
func (d *directory) readFormat() error {
	f, err := d.fs.Open(formatFile)
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
	return d.parseFormat(string(b))
}

// parseFormat checks the version first, because the other lines of a newer format may look
// different.
func (d *directory) parseFormat(text string) error {
	first, rest, _ := strings.Cut(text, "\n")
	version, err := strconv.Atoi(strings.TrimPrefix(first, "weir journal "))
	if err != nil || !strings.HasPrefix(first, "weir") {
		return fmt.Errorf("%w: %s begins with %q", ErrForeign, formatFile, first)
	}
	if version > formatVersion {
		return fmt.Errorf("%w: format %d, this version supports up to %d", ErrNewer, version, formatVersion)
	}
	var salt []byte
	_, err = fmt.Sscanf(rest, "segment %d\nsalt %x\n", &d.size, &salt)
	if d.version = version; copy(d.salt[:], salt) < len(d.salt) || err != nil || !validSize(d.size) || text != d.formatText() {
		return &DamageError{File: formatFile, What: "journal format", Err: segments.ErrChecksum}
	}
	return nil
}

// formatText returns the content of the format file.
func (d *directory) formatText() string {
	text := fmt.Sprintf("weir journal %d\nsegment %d\nsalt %x\n", d.version, d.size, d.salt)
	return text + fmt.Sprintf("check %08x\n", segments.Sum(0, []byte(text)))
}

// writeFormat writes the format file. With this file an empty directory becomes a journal. The file
// always states the current version, because other files may already have that version.
func (d *directory) writeFormat() error {
	d.version = formatVersion
	if err := d.replace(formatFile, formatTmpFile, []byte(d.formatText())); err != nil {
		return fmt.Errorf("create %s: %w", formatFile, err)
	}
	return nil
}

// replace writes a small file atomically: after a crash, the file is either as it was before or has
// the new content. When replace returns nil, the new content is durable. The parameter tmp is the
// name of the file while it is being written.
func (d *directory) replace(name, tmp string, content []byte) error {
	f, err := d.createTemporary(tmp)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writeSynced(f, 0, content); err != nil {
		return err
	}
	if err := d.fs.Rename(tmp, name); err != nil {
		return err
	}
	return d.fs.SyncDir()
}

// createTemporary creates a temporary file, in place of one that a crash may have left.
func (d *directory) createTemporary(tmp string) (disk.File, error) {
	if err := d.fs.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return d.fs.Create(tmp)
}

// writeSynced writes b at an offset of a file and syncs the file.
func writeSynced(f disk.File, off int64, b []byte) error {
	if err := f.WriteAt(off, b); err != nil {
		return err
	}
	return f.SyncData()
}
