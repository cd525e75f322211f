package faulty

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"syscall"
)

// file is an open file.
type file struct {
	fs     *FS
	inode  *inode
	closed bool
}

// enter runs the hook for a call and then takes the lock. If it returns nil, the caller must
// unlock.
func (o *file) enter(op string, c Call) error {
	o.fs.mu.Lock()
	err := o.usable(op)
	c.Name = o.inode.name
	o.fs.mu.Unlock()
	if err != nil {
		return err
	}
	err = o.fs.beforeCall(op, c)
	o.fs.mu.Lock()
	if err != nil {
		o.failed(c, err)
	} else {
		err = o.usable(op) // the hook may have closed the file
	}
	if err != nil {
		o.fs.mu.Unlock()
	}
	return err
}

// failed applies the effects that a call has on the file even though it fails.
func (o *file) failed(c Call, err error) {
	switch c.Kind {
	case Sync:
		// After a failed sync, the kernel marks the pages as clean. They can be read, but no later
		// sync writes them to the disk.
		o.inode.pending = nil
	case Write:
		var p Partial
		if errors.As(err, &p) && p.Bytes > 0 && c.Off >= 0 {
			o.write(c.data[:min(p.Bytes, len(c.data))], c.Off)
		}
	}
}

func (o *file) usable(op string) error {
	if o.closed {
		return o.fault(op, fs.ErrClosed)
	}
	return nil
}

func (o *file) fault(op string, err error) error {
	return &fs.PathError{Op: op, Path: o.inode.name, Err: err}
}

func (o *file) ReadAt(p []byte, off int64) (int, error) {
	if err := o.enter("read", Call{Kind: Read, Off: off, Len: len(p)}); err != nil {
		return 0, err
	}
	defer o.fs.mu.Unlock()
	if off < 0 {
		return 0, o.fault("read", fs.ErrInvalid)
	}
	n := o.inode.current.read(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (o *file) WriteAt(off int64, bufs ...[]byte) error {
	data := concat(bufs)
	if err := o.enter("write", Call{Kind: Write, Off: off, Len: len(data), data: data}); err != nil {
		return err
	}
	defer o.fs.mu.Unlock()
	if off < 0 {
		return o.fault("write", fs.ErrInvalid)
	}
	return o.write(data, off)
}

// concat returns a copy of the buffers. The copy must not be changed, because all copies of zeros
// share their memory.
func concat(bufs [][]byte) []byte {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	if n <= len(zeros) && !slices.ContainsFunc(bufs, func(b []byte) bool { return !isZero(b) }) {
		return zeros[:n:n]
	}
	return slices.Concat(bufs...)
}

var zeros [1 << 20]byte

// write writes as much as there is space for, like a disk that runs full.
func (o *file) write(data []byte, off int64) error {
	var err error
	if room := o.room(); off+int64(len(data)) > room {
		data, err = data[:max(0, room-off)], o.fault("write", syscall.ENOSPC)
	}
	if len(data) > 0 {
		o.change(write{off: off, data: data})
	}
	return err
}

// room returns the largest length that the file can have.
func (o *file) room() int64 {
	size := o.inode.current.size
	if o.fs.capacity < 0 || !o.inode.linked {
		return 1 << 62
	}
	return max(size, size+o.fs.capacity-o.fs.used)
}

func (o *file) change(w write) {
	in := o.inode
	before := in.current.size
	w.apply(&in.current)
	if in.linked {
		o.fs.used += in.current.size - before
	}
	o.fs.writes++
	w.order, w.file = o.fs.writes, in
	in.pending = append(in.pending, w)
}

// Allocate is the same as Truncate, because this file system has no sparse files: a file takes space
// for all its bytes, even for those that were never written.
func (o *file) Allocate(size int64) error { return o.Truncate(size) }

func (o *file) Truncate(size int64) error {
	if err := o.enter("truncate", Call{Kind: Truncate, Off: size}); err != nil {
		return err
	}
	defer o.fs.mu.Unlock()
	switch {
	case size < 0:
		return o.fault("truncate", fs.ErrInvalid)
	case size > o.room():
		return o.fault("truncate", syscall.ENOSPC)
	}
	o.change(write{off: size, cut: true})
	return nil
}

// SyncData makes all pending writes durable. Writes that were pending when an earlier SyncData
// failed are never made durable, although they can be read until the crash.
func (o *file) SyncData() error {
	if err := o.enter("sync", Call{Kind: Sync}); err != nil {
		return err
	}
	defer o.fs.mu.Unlock()
	in := o.inode
	for _, w := range in.pending {
		w.apply(&in.durable)
	}
	in.pending = nil
	return nil
}

func (o *file) Size() (int64, error) {
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	return o.inode.current.size, o.usable("size")
}

func (o *file) Close() error {
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	err := o.usable("close")
	o.closed = true
	return err
}
