package repair

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"weir/internal/disk"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/segments"
)

// ErrNotEmpty means that the target directory of a restore is not empty.
var ErrNotEmpty = errors.New("not empty")

// Restore fills an empty directory with the files of a snapshot. The files are staged (see
// disk.Stage), so the directory becomes a journal only when Finish succeeds. The lock is held until
// then. A Restore must end with Finish, or with Abort if anything fails.
type Restore struct {
	dir    directory.Directory
	stage  *disk.Stage
	format []byte
}

// NewRestore takes the lock of an empty directory. It returns ErrNotEmpty or disk.ErrLocked.
func NewRestore(fs disk.FS) (*Restore, error) {
	r := &Restore{dir: directory.Directory{FS: fs}}
	if err := r.empty(); err != nil {
		return nil, err
	}
	lock, err := fs.Lock(directory.LockFile)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	r.dir.Lock = lock
	if err := r.empty(); err != nil { // a server may have created a journal before the lock was taken
		lock.Close()
		return nil, err
	}
	r.stage, err = disk.NewStage(fs)
	if r.dir.FS = r.stage; err != nil {
		return nil, errors.Join(err, r.Abort())
	}
	return r, nil
}

func (r *Restore) empty() error {
	names, err := r.dir.List()
	for _, name := range names {
		if name != directory.LockFile {
			return fmt.Errorf("%w: the directory contains %s", ErrNotEmpty, name)
		}
	}
	return err
}

// Add writes one file of a snapshot and syncs it. The format file must come first. It is kept in
// memory and written by Finish.
func (r *Restore) Add(name string, content io.Reader) error {
	if name == directory.FormatFile {
		b, err := io.ReadAll(io.LimitReader(content, 4096))
		if err != nil {
			return err
		}
		if err := r.dir.ParseFormat(string(b)); err != nil {
			return err
		}
		r.format = b
		return nil
	}
	if _, ok := segments.NumberOf(name); !ok || r.format == nil {
		return fmt.Errorf("%w: unexpected file %s", directory.ErrForeign, name)
	}
	f, err := r.dir.FS.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(r.fill(f, name, content), f.Close())
}

// fill writes a segment to its full size, because syncs are cheaper on blocks that were written
// before.
func (r *Restore) fill(f disk.File, name string, content io.Reader) error {
	buf, release := segments.Buffer(segments.ShortRun)
	defer release()
	packed, most := false, r.dir.Size
	for off := int64(0); off < most; off += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), most-off)]
		n, err := io.ReadFull(content, b)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		clear(b[n:])
		if packed = packed || off == 0 && segments.IsPacked(b); packed {
			b, most = b[:n], 2*r.dir.Size // incompressible content takes a little more space than it has bytes
		}
		if err := f.WriteAt(off, b); err != nil {
			return err
		}
	}
	if n, _ := io.ReadFull(content, buf[:1]); n > 0 {
		return &segments.DamageError{File: name, Offset: r.dir.Size, What: "segment", Err: errors.New("longer than a segment")}
	}
	return f.SyncData()
}

// Finish checks everything that was added and makes the directory a journal. The report may contain
// damage that the snapshot already had. Such damage does not make the restore fail.
func (r *Restore) Finish(o CheckOptions) (*Report, error) {
	if r.format == nil {
		return nil, fmt.Errorf("%w: file %s is missing", directory.ErrForeign, directory.FormatFile)
	}
	c := newCheckup(&r.dir, o)
	report, err := c.run()
	c.closeFiles()
	if err != nil {
		return nil, err
	}
	if r.dir.Version >= 2 {
		if err := r.dir.CreateEnd(c.ending()); err != nil {
			return nil, err
		}
		r.dir.CloseEnd()
	}
	if err := r.dir.Replace(directory.FormatFile, r.format); err != nil {
		return nil, fmt.Errorf("create %s: %w", directory.FormatFile, err)
	}
	if err := r.stage.Commit(); err != nil {
		return nil, err
	}
	_ = r.dir.Lock.Close()
	return report, nil
}

// Abort removes everything that was created. It removes the lock file last and while it holds the
// lock, so no other process can start using the directory before it is empty.
func (r *Restore) Abort() error {
	err := r.stage.Discard()
	if gone := r.stage.FS.Remove(directory.LockFile); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return errors.Join(err, r.stage.SyncDir(), r.dir.Lock.Close())
}
