// Package directory is the directory of a journal and the files in it other than segments: the lock,
// the file "format" that makes a directory a journal, and the file "end" that proves how far the log
// reached.
package directory

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/blocks"
	"weir/internal/engine/journal/segments"
)

// Files of the journal other than segments.
const (
	LockFile        = "lock"
	FormatFile      = "format"
	EndFile         = "end" // proves how far the log reached at least
	temporarySuffix = ".tmp"
)

// The errors for a directory that this version cannot open. The directory stays as it is.
var (
	ErrForeign = errors.New("not a Weir journal")
	ErrNewer   = errors.New("written by a newer version of Weir")
)

// formatVersion is the version of the format that this code writes. A directory with a higher
// version is refused. A journal of format 1 has no file "end", no salts in its segment headers and
// no bonds (checksums over all records) in the heads of its groups. Opening such a journal writes
// what the current format needs. Since format 3, an entry may have the flag engine.Ends, which an
// older program would ignore. Only a journal that may have compressed segments has a higher format:
// 4 if they were compressed with S2, which an earlier version did, and 5 otherwise.
const (
	formatVersion     = 3
	compressedVersion = 5
)

// Directory is the directory of a journal, what its format file says, and its open files.
type Directory struct {
	FS       disk.FS
	Size     int64 // size of each segment
	Salt     [8]byte
	Version  int          // version of the format
	Compress bool         // the journal may have compressed segments, so it needs compressedVersion
	Cache    blocks.Cache // decoded blocks of compressed segments
	Lock     io.Closer
	End      Proof
}

// Close closes the file "end" and releases the lock.
func (d *Directory) Close() {
	d.CloseEnd()
	if d.Lock != nil {
		d.Lock.Close()
	}
}

// Identify is steps 1 to 3 of opening a journal (see DESIGN.md): decide whether the directory is a
// journal, take the lock, and read the format. Identify turns an empty directory into a journal and
// then returns fresh = true.
func (d *Directory) Identify() (fresh bool, err error) {
	if _, err := d.known(); err != nil {
		return false, err
	}
	if err := d.Take(); err != nil {
		return false, err
	}
	// Another process may have changed the directory before the lock was taken.
	if known, err := d.known(); known || err != nil {
		return false, err
	}
	rand.Read(d.Salt[:])
	if err := d.CreateEnd(Ending{Group: 1}); err != nil {
		return false, err
	}
	return true, d.WriteFormat()
}

// Take takes the lock of the directory. If a repair or a restore was interrupted after its result
// was complete, Take then installs that result.
func (d *Directory) Take() (err error) {
	if d.Lock, err = d.FS.Lock(LockFile); err != nil {
		if errors.Is(err, disk.ErrLocked) {
			return fmt.Errorf("the data directory is %w", disk.ErrLocked)
		}
		return fmt.Errorf("lock the data directory: %w", err)
	}
	return disk.Install(d.FS)
}

// known reports whether the directory is a journal, and reads its format. It returns ErrForeign if
// the directory is neither a journal nor empty.
func (d *Directory) known() (bool, error) {
	names, err := d.List()
	if disk.Installing(names) || err != nil {
		return true, err // the method Take will install a journal
	}
	if slices.Contains(names, FormatFile) {
		return true, d.ReadFormat()
	}
	for _, name := range names {
		if !slices.Contains([]string{LockFile, FormatFile + temporarySuffix, EndFile + temporarySuffix}, name) && !(name == EndFile && d.neverUsed()) {
			return false, fmt.Errorf("%w: the directory contains %s but no file %s", ErrForeign, name, FormatFile)
		}
	}
	return false, nil
}

// List returns the names of all files.
func (d *Directory) List() ([]string, error) {
	names, err := d.FS.List()
	if err != nil {
		return nil, fmt.Errorf("list the data directory: %w", err)
	}
	return names, nil
}

// neverUsed reports whether the file "end" says that no segment was ever used. The file says so if
// a crash came after "end" was created and before the format file was created.
func (d *Directory) neverUsed() bool {
	p, err := loadEnd(d.FS)
	return err == nil && p.Latest.Segment == 0
}

// TakeDamaged takes the lock of a journal that may be damaged, and reads its format. Unlike Identify,
// it does not turn an empty directory into a journal. If the format file is unusable but another file
// holds a copy of its content, TakeDamaged succeeds, and the result fault says what is wrong with the
// format file.
func (d *Directory) TakeDamaged() (fault, err error) {
	if _, err := d.findFormat(); err != nil {
		return nil, err
	}
	if err := d.Take(); err != nil {
		return nil, err
	}
	return d.findFormat() // again: another process may have changed the directory before the lock was taken
}

// findFormat reads the format for TakeDamaged.
func (d *Directory) findFormat() (fault, err error) {
	names, err := d.List()
	if disk.Installing(names) || err != nil {
		return nil, err
	}
	fault = fmt.Errorf("%w: file %s is missing", ErrForeign, FormatFile)
	if slices.Contains(names, FormatFile) {
		fault = d.ReadFormat()
	}
	if fault != nil && (!Unusable(fault) || !d.salvageFormat(names)) {
		return nil, fault
	}
	return fault, nil
}

// OpenSegments opens every file with a segment name, as a segment that the function add returns. It
// finds out how the segment is stored, but does not check its header. OpenSegments returns the names
// of all other files. After an error, the caller closes the files that are open.
func (d *Directory) OpenSegments(add func(number uint64) *segments.Segment) (others []string, err error) {
	names, err := d.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		number, ok := segments.NumberOf(name)
		if !ok {
			others = append(others, name)
			continue
		}
		f, err := d.FS.Open(name)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", name, err)
		}
		s := add(number)
		s.Init(f, d.Salt, number, d.Size)
		if err := s.Unpack(&d.Cache); err != nil {
			return nil, err
		}
		d.Compress = d.Compress || s.Packed() != nil // even if the version in the format file is lost
	}
	return others, nil
}

// Unusable reports whether err means that the content of a file cannot be used. After any other
// error, another attempt may succeed.
func Unusable(err error) bool {
	return errors.Is(err, engine.ErrDamaged) || errors.Is(err, ErrForeign) || errors.Is(err, syscall.EIO)
}

// salvageFormat finds the salt and the segment size if the format file is lost. The file "end" and
// the header of every segment hold copies of both.
func (d *Directory) salvageFormat(names []string) bool {
	p, err := loadEnd(d.FS)
	ok := err == nil && p.Latest.Segment > 0
	for _, name := range names {
		if _, segment := segments.NumberOf(name); err == nil || ok || !segment {
			continue
		}
		if f, err := d.FS.Open(name); err == nil {
			p.salt, p.size, ok = segments.SaltOf(f)
			f.Close()
		}
	}
	if ok = ok && CheckSize(p.size) == nil; ok {
		d.Salt, d.Size, d.Version = p.salt, p.size, d.needed()
	}
	return ok
}

// The limits of the size of a segment.
const (
	minSegment = 64 << 10 // only tests use such small segments: those of a server must hold several batches of maximum size
	maxSegment = 1 << 31  // the format stores offsets in 32 bits
)

// CheckSize returns an error if segments cannot have this size.
func CheckSize(size int64) error {
	if size >= minSegment && size <= maxSegment && size%segments.DataStart == 0 {
		return nil
	}
	return fmt.Errorf("segment size %d: must be a multiple of %d between %d and %d", size, segments.DataStart, minSegment, int64(maxSegment))
}

// ReadFormat reads the format file, for example:
//
//	weir journal 3
//	segment 67108864
//	salt 5f1c0a9e4b7d2836
//	check 8d2f01aa
func (d *Directory) ReadFormat() error {
	f, err := d.FS.Open(FormatFile)
	if err != nil {
		return fmt.Errorf("open %s: %w", FormatFile, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("read %s: %w", FormatFile, err)
	}
	b := make([]byte, min(size, 4096))
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return fmt.Errorf("read %s: %w", FormatFile, err)
	}
	return d.ParseFormat(string(b))
}

// ParseFormat checks the version first, because the other lines of a newer format may look
// different.
func (d *Directory) ParseFormat(text string) error {
	first, rest, _ := strings.Cut(text, "\n")
	version, err := strconv.Atoi(strings.TrimPrefix(first, "weir journal "))
	if err != nil || !strings.HasPrefix(first, "weir") {
		return fmt.Errorf("%w: %s begins with %q", ErrForeign, FormatFile, first[:min(len(first), 40)])
	}
	if version > compressedVersion {
		return fmt.Errorf("%w: format %d, this version supports up to %d", ErrNewer, version, compressedVersion)
	}
	size, rest, _ := strings.Cut(strings.TrimPrefix(rest, "segment "), "\n")
	salt, _, _ := strings.Cut(strings.TrimPrefix(rest, "salt "), "\n")
	if d.Size, err = strconv.ParseInt(size, 10, 64); err == nil && len(salt) == 2*len(d.Salt) {
		_, err = hex.Decode(d.Salt[:], []byte(salt))
	}
	if d.Version = version; err != nil || CheckSize(d.Size) != nil || text != d.FormatText() {
		return &segments.DamageError{File: FormatFile, What: "journal format", Err: segments.ErrChecksum}
	}
	return nil
}

// FormatText returns the content of the format file.
func (d *Directory) FormatText() string {
	text := fmt.Sprintf("weir journal %d\nsegment %d\nsalt %x\n", d.Version, d.Size, d.Salt)
	return text + fmt.Sprintf("check %08x\n", segments.Sum(0, []byte(text)))
}

// needed returns the lowest version of the format that this journal needs.
func (d *Directory) needed() int {
	if d.Compress {
		return compressedVersion
	}
	return formatVersion
}

// WriteFormat writes the format file. With this file an empty directory becomes a journal. The file
// never states less than the needed version, because other files may already have that version.
func (d *Directory) WriteFormat() error {
	d.Version = max(d.Version, d.needed())
	if err := d.Replace(FormatFile, []byte(d.FormatText())); err != nil {
		return fmt.Errorf("create %s: %w", FormatFile, err)
	}
	return nil
}

// Replace writes a small file atomically: after a crash, the file is either as it was before or has
// the new content. When replace returns nil, the new content is durable. While the file is being
// written, its name ends with temporarySuffix.
func (d *Directory) Replace(name string, content []byte) error {
	tmp := name + temporarySuffix
	f, err := d.CreateTemporary(tmp)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := WriteSynced(f, 0, content); err != nil {
		return err
	}
	if err := d.FS.Rename(tmp, name); err != nil {
		return err
	}
	return d.FS.SyncDir()
}

// CreateTemporary creates a temporary file, in place of one that a crash may have left.
func (d *Directory) CreateTemporary(tmp string) (disk.File, error) {
	if err := d.FS.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return d.FS.Create(tmp)
}

// WriteSynced writes b at an offset of a file and syncs the file.
func WriteSynced(f disk.File, off int64, b []byte) error {
	if err := f.WriteAt(off, b); err != nil {
		return err
	}
	return f.SyncData()
}
