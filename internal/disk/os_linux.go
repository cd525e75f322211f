package disk

import (
	"io"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxBuffers is IOV_MAX of Linux: the most buffers that one call takes.
const maxBuffers = 1024

// WriteAt hands all buffers to the kernel in one call where it can, so that a group of records costs one crossing and
// no copy.
func (f *osFile) WriteAt(off int64, bufs ...[]byte) error {
	// A short write changes the list and the buffer where it stopped; the caller's list stays as it is.
	bufs = slices.Clone(bufs)
	return control(f.f, "write", func(fd int) error {
		for {
			bufs = skipEmpty(bufs)
			if len(bufs) == 0 {
				return nil
			}
			n, err := unix.Pwritev(fd, bufs[:min(len(bufs), maxBuffers)], off)
			if err != nil {
				return err // control calls again after EINTR, and bufs and off say what is left
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

// skip takes the first n bytes out of bufs, which it changes.
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

// SyncData leaves the file's times unsynced, which spares the file system's journal; the size is covered.
func (f *osFile) SyncData() error {
	return control(f.f, "fdatasync", syscall.Fdatasync)
}
