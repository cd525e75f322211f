package disk

import (
	"io"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxBuffers is IOV_MAX of Linux, the largest number of buffers that one write accepts.
const maxBuffers = 1024

// WriteAt passes as many buffers to the kernel in one call as possible, so that many records can be
// written with one system call and without copying them.
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

func (f *osFile) Allocate(size int64) error {
	return control(f.f, "allocate", func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
}

// SyncData uses fdatasync, which makes the size of the file durable but not its times. That saves
// work in the file system's own journal.
func (f *osFile) SyncData() error {
	return control(f.f, "fdatasync", syscall.Fdatasync)
}

// noCOW is FS_NOCOW_FL of Linux.
const noCOW = 0x00800000

// overwriteInPlace makes btrfs overwrite a new, empty file in place (the attribute C of chattr).
// Otherwise btrfs writes changed blocks to new places: each sync then also writes metadata, and
// overwriting needs free space. Other file systems are left alone. An error is ignored, because the
// attribute affects only performance and space.
func overwriteInPlace(f *os.File) {
	_ = control(f, "set attributes", func(fd int) error {
		var system unix.Statfs_t
		if err := unix.Fstatfs(fd, &system); err != nil || system.Type != unix.BTRFS_SUPER_MAGIC {
			return err
		}
		flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|noCOW))
	})
}

// uncache ignores errors, because an error only means that later reads may still come from memory.
func (f *osFile) uncache() {
	_ = control(f.f, "advise", func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
}
