// Package disk is the file system interface of the journal. It is small, so that tests can
// implement it. Package faulty is such an implementation: it can lose unsynced bytes, cut writes
// short, make calls fail and fill the disk. The function OS returns the real implementation.
package disk

import (
	"errors"
	"io"
	"syscall"
)

// FS is one directory. Names are plain file names without separators.
//
// A crash may undo writes since the file's last successful SyncData, wholly or in part and in any
// order. It may also undo creations, renames and removals since the last successful SyncDir.
// Everything that a successful SyncData or SyncDir covered survives.
type FS interface {
	// Create creates a file and opens it for reading and writing. It returns fs.ErrExist if the
	// file exists.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing. It returns fs.ErrNotExist if the file
	// does not exist.
	Open(name string) (File, error)
	// Rename renames a file atomically, replacing an existing file of the new name.
	Rename(old, new string) error
	// Remove removes a file. Open handles to it stay usable.
	Remove(name string) error
	// List returns the names in the directory, sorted.
	List() ([]string, error)
	// SyncDir makes all creations, renames and removals so far durable.
	SyncDir() error
	// Lock takes the lock of the named file, and creates the file if necessary. It returns
	// ErrLocked if the lock is already taken. Closing the result releases the lock, and so does the
	// end of the process.
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt and WriteAt may be called from many goroutines at once.
type File interface {
	io.ReaderAt
	// WriteAt writes the buffers one after another at off. It returns nil only if all bytes were
	// written. After an error, some of the bytes may have been written. WriteAt does not keep or
	// change the buffers.
	WriteAt(off int64, bufs ...[]byte) error
	// SyncData makes everything written so far durable, including the file's size. After an error
	// nothing may be assumed about any write since the last success.
	SyncData() error
	// Size returns the length of the file.
	Size() (int64, error)
	// Allocate extends the file to size and reserves the space, so that writing below size needs no
	// more space. The new bytes are zeros. If the file system cannot do that, Allocate returns
	// errors.ErrUnsupported.
	Allocate(size int64) error
	// Truncate sets the length of the file.
	Truncate(size int64) error
	io.Closer
}

// Uncache asks the operating system to drop its copy of a file in memory, so that the next read
// comes from the disk. Unsynced data stays in memory. On systems other than Linux, and on other
// implementations of File, Uncache does nothing.
func Uncache(f File) {
	if u, ok := f.(interface{ uncache() }); ok {
		u.uncache()
	}
}

// ErrLocked means that another process, or another part of this process, holds the lock.
var ErrLocked = errors.New("in use by another process")

// IsShortage reports whether err is a temporary shortage, of disk space or of file handles. A later
// attempt may succeed.
func IsShortage(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EFBIG} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
