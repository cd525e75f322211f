package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"weir/internal/disk"
)

// ErrNotEmpty means that the target directory of a restore is not empty.
var ErrNotEmpty = errors.New("not empty")

// restoringFile exists while a directory is being restored. A directory that has this file and no
// format file is not taken for a journal.
const restoringFile = "restoring"

// Restore fills an empty directory with the files of a snapshot. Until Finish, the directory is not
// a journal: the format file is written last, and the lock is held. A Restore must end with Finish,
// or with Abort if anything fails.
type Restore struct {
	j      *Journal
	format []byte
	made   []string
}

// NewRestore takes the lock of an empty directory. It returns ErrNotEmpty or disk.ErrLocked.
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
	if err := r.empty(); err != nil { // a server may have created a journal before the lock was taken
		lock.Close()
		return nil, err
	}
	if err := r.begin(); err != nil {
		return nil, errors.Join(err, r.Abort())
	}
	return r, nil
}

// begin creates the file "restoring". Until the directory has a format file, this file makes every
// opening refuse the directory.
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
			return fmt.Errorf("%w: the directory contains %s", ErrNotEmpty, name)
		}
	}
	return nil
}

// Add writes one file of a snapshot and syncs it. The format file must come first. It is kept in
// memory and written by Finish.
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
		return fmt.Errorf("%w: unexpected file %s", ErrForeign, name)
	}
	f, err := r.j.fs.Create(name)
	if err != nil {
		return err
	}
	r.made = append(r.made, name)
	return errors.Join(r.fill(f, name, content), f.Close())
}

// fill writes a segment to its full size, because syncs are cheaper on blocks that were written
// before.
func (r *Restore) fill(f disk.File, name string, content io.Reader) error {
	buf := make([]byte, min(zeroStep, r.j.size))
	off := int64(0)
	for {
		n, err := io.ReadFull(content, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		if off+int64(n) > r.j.size {
			return &DamageError{File: name, Offset: r.j.size, What: "segment", Err: errors.New("longer than a segment")}
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

// Finish checks everything that was added and makes the directory a journal. The report may contain
// damage that the snapshot already had. Such damage does not make the restore fail.
func (r *Restore) Finish(o CheckOptions) (*Report, error) {
	if r.format == nil {
		return nil, fmt.Errorf("%w: file %s is missing", ErrForeign, formatFile)
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
	r.made = append(r.made, endTmpFile, endFile, formatTmpFile, formatFile)
	if r.j.version >= 2 {
		if err := r.j.createEnd(c.ending()); err != nil {
			return nil, err
		}
		r.j.end.file.Close()
	}
	if err := r.j.replace(formatFile, formatTmpFile, r.format); err != nil {
		return nil, fmt.Errorf("create %s: %w", formatFile, err)
	}
	// From here on the directory is a journal, even if the next steps fail: an opening ignores the
	// file "restoring" if there is a format file.
	_ = r.j.fs.Remove(restoringFile)
	_ = r.j.fs.SyncDir()
	_ = r.j.lock.Close()
	return report, nil
}

// Abort removes everything that was created. It removes the lock file last and while it holds the
// lock, so no other process can start using the directory before it is empty.
func (r *Restore) Abort() error {
	var faults []error
	r.made = append([]string{lockFile}, r.made...)
	for i := len(r.made) - 1; i >= 0; i-- { // in reverse, so the format file goes first
		if err := r.j.fs.Remove(r.made[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, err)
		}
	}
	return errors.Join(append(faults, r.j.fs.SyncDir(), r.j.lock.Close())...)
}
