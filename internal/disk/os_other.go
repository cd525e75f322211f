//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package disk

import (
	"errors"
	"os"
)

// WriteAt writes one buffer after another, because these systems have no common call that writes
// many buffers at an offset.
func (f *osFile) WriteAt(off int64, bufs ...[]byte) error {
	for _, b := range bufs {
		n, err := f.f.WriteAt(b, off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// SyncData is a full sync. On macOS it also flushes the drive's cache.
func (f *osFile) SyncData() error { return f.f.Sync() }

// Allocate is not supported, because these systems have no common call that reserves space.
func (f *osFile) Allocate(int64) error { return errors.ErrUnsupported }

// overwriteInPlace does nothing, because the file attribute that makes a file system overwrite in
// place exists only on Linux.
func overwriteInPlace(*os.File) {}
