//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package disk

import (
	"errors"
	"os"
)

// WriteAt writes one buffer after another: these systems have no common call for many buffers at an
// offset.
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

// Allocate is not supported: these systems have no common call for it.
func (f *osFile) Allocate(int64) error { return errors.ErrUnsupported }

// overwriteInPlace does nothing: only Linux has the attribute for it.
func overwriteInPlace(*os.File) {}
