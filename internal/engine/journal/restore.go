package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"weir/internal/disk"
)

// ErrNotEmpty says that a directory holds something, so that nothing is restored into it.
var ErrNotEmpty = errors.New("not empty")

// restoringFile is there while a directory is being filled.
const restoringFile = "restoring"

// Restore fills an empty directory with the files of a snapshot. Until Finish nobody takes the directory for a journal:
// its format comes last, and the lock is held. A Restore ends with Finish or Abort.
type Restore struct {
	j      *Journal
	format []byte
	made   []string
}

// NewRestore takes the lock of an empty directory. ErrNotEmpty, disk.ErrLocked.
func NewRestore(fs disk.FS) (*Restore, error) {
	r := &Restore{j: newJournal(fs, Options{SegmentSize: defaultSegment})}
	if err := r.empty(); err != nil {
		return nil, err
	}
	lock, err := fs.Lock(lockFile)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	r.j.lock = lock
	if err := r.empty(); err != nil { // a server may have been faster
		lock.Close()
		return nil, err
	}
	if err := r.begin(); err != nil {
		return nil, errors.Join(err, r.Abort())
	}
	return r, nil
}

// begin leaves a file that makes every opening refuse the directory until there is a format.
func (r *Restore) begin() error {
	f, err := r.j.fs.Create(restoringFile)
	if err != nil {
		return err
	}
	r.made = append(r.made, restoringFile)
	return errors.Join(f.Close(), r.j.fs.SyncDir())
}

func (r *Restore) empty() error {
	names, err := r.j.fs.List()
	if err != nil {
		return fmt.Errorf("list the data directory: %w", err)
	}
	for _, name := range names {
		if name != lockFile {
			return fmt.Errorf("%w: the directory holds %s", ErrNotEmpty, name)
		}
	}
	return nil
}

// Add writes one file of a snapshot, from its content, and syncs it. The format is the first.
func (r *Restore) Add(name string, content io.Reader) error {
	if name == formatFile {
		b, err := io.ReadAll(io.LimitReader(content, 4096))
		if err != nil {
			return err
		}
		if err := r.j.parseFormat(string(b)); err != nil {
			return err
		}
		r.format = b
		return nil
	}
	if _, ok := segmentNumber(name); !ok || r.format == nil {
		return fmt.Errorf("%w: %s is out of place", ErrForeign, name)
	}
	f, err := r.j.fs.Create(name)
	if err != nil {
		return err
	}
	r.made = append(r.made, name)
	return errors.Join(r.fill(f, name, content), f.Close())
}

// fill writes a segment to its full size: blocks that were written make later syncs cheaper.
func (r *Restore) fill(f disk.File, name string, content io.Reader) error {
	buf := make([]byte, min(zeroStep, r.j.size))
	off := int64(0)
	for {
		n, err := io.ReadFull(content, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		if off+int64(n) > r.j.size {
			return &DamageError{File: name, Offset: r.j.size, What: "segment", Err: errors.New("it is longer than a segment")}
		}
		if werr := f.WriteAt(off, buf[:n]); werr != nil {
			return werr
		}
		off += int64(n)
		if err != nil {
			break
		}
	}
	clear(buf)
	for ; off < r.j.size; off += int64(len(buf)) {
		if err := f.WriteAt(off, buf[:min(int64(len(buf)), r.j.size-off)]); err != nil {
			return err
		}
	}
	return f.SyncData()
}

// Finish checks all that was added, and makes the directory a journal. The report may tell of damage that the snapshot
// has brought along: the directory is then what the snapshot was.
func (r *Restore) Finish(o CheckOptions) (*Report, error) {
	if r.format == nil {
		return nil, fmt.Errorf("%w: there is no file %s", ErrForeign, formatFile)
	}
	if err := r.j.fs.SyncDir(); err != nil {
		return nil, fmt.Errorf("sync directory: %w", err)
	}
	c := newCheckup(r.j, o)
	report, err := c.run()
	c.closeFiles()
	if err != nil {
		return nil, err
	}
	r.made = append(r.made, formatTmpFile, formatFile)
	if err := r.j.replace(formatFile, formatTmpFile, r.format); err != nil {
		return nil, fmt.Errorf("create %s: %w", formatFile, err)
	}
	// It is a journal from here on, whatever follows: no opening minds the other file beside a format.
	_ = r.j.fs.Remove(restoringFile)
	_ = r.j.fs.SyncDir()
	_ = r.j.lock.Close()
	return report, nil
}

// Abort removes what was made, the lock last and while it is held: whoever comes next makes another.
func (r *Restore) Abort() error {
	var faults []error
	r.made = append([]string{lockFile}, r.made...)
	for i := len(r.made) - 1; i >= 0; i-- { // the format first
		if err := r.j.fs.Remove(r.made[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, err)
		}
	}
	return errors.Join(append(faults, r.j.fs.SyncDir(), r.j.lock.Close())...)
}
