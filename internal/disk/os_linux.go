package disk

import (
	"io"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxBuffers is IOV_MAX of Linux, the largest number of buffers that one call accepts.
const maxBuffers = 1024

// WriteAt passes as many buffers to the kernel in one call as possible, so that a group of records
// costs one system call and no copy.
func (f *osFile) WriteAt(off int64, bufs ...[]byte) error {
	// After a short write, the function skip changes the list of buffers. The caller's list must
	// not change.
	bufs = slices.Clone(bufs)
	return control(f.f, "write", func(fd int) error {
		for {
			bufs = skipEmpty(bufs)
			if len(bufs) == 0 {
				return nil
			}
			n, err := unix.Pwritev(fd, bufs[:min(len(bufs), maxBuffers)], off)
			if err != nil {
				return err // if it is EINTR, control calls this function again, to write the buffers that are left
			}
			if n == 0 {
				return io.ErrShortWrite
			}
			off += int64(n)
			bufs = skip(bufs, n)
		}
	})
}

func skipEmpty(bufs [][]byte) [][]byte {
	for len(bufs) > 0 && len(bufs[0]) == 0 {
		bufs = bufs[1:]
	}
	return bufs
}

// skip removes the first n bytes from bufs, in place.
func skip(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
}

// SyncData uses fdatasync, which covers the size but not the file's times. That saves work in the
// file system's own journal.
func (f *osFile) SyncData() error {
	return control(f.f, "fdatasync", syscall.Fdatasync)
}
