// Package disk is everything that the journal asks of a file system, as one small interface, so that tests can lose
// unsynced bytes, tear writes, fail calls and fill the disk. OS is the real one.
package disk

import (
	"errors"
	"io"
)

// FS is one directory. Names are plain file names in it: no separators.
//
// What a crash may take away: writes since the file's last successful SyncData or Sync, wholly or in part, in any
// order; and creations, renames and removals since the last SyncDir. What those calls covered stays.
type FS interface {
	// Create makes a file that does not exist yet (fs.ErrExist otherwise), open for reading and writing.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing; fs.ErrNotExist when there is none.
	Open(name string) (File, error)
	// Rename gives a file another name, replacing what had it.
	Rename(old, new string) error
	// Remove takes the name away.
	Remove(name string) error
	// List returns the names in the directory, in order.
	List() ([]string, error)
	// SyncDir makes creations, renames and removals so far durable.
	SyncDir() error
	// Lock takes the named lock file (made if missing) for this process; ErrLocked when another holds it. Closing
	// what it returns gives the lock back, and so does the end of the process.
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt and WriteAt may be called from many goroutines.
type File interface {
	io.ReaderAt
	// WriteAt writes the buffers one after another at off, all or with an error. A failed write may have written a part.
	WriteAt(off int64, bufs ...[]byte) error
	// SyncData makes all that was written so far durable, and the file's size with it. After an error nothing may be
	// assumed of any write since the last success.
	SyncData() error
	// Size is the length of the file.
	Size() (int64, error)
	// Truncate sets the length of the file.
	Truncate(size int64) error
	io.Closer
}

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("in use by another process")
