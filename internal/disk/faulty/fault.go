package faulty

import (
	"fmt"
	"io/fs"
	"slices"

	"weir/internal/disk"
)

// Kind is the method of disk.FS or disk.File that is called.
type Kind uint8

// The kinds of calls. Sync is File.SyncData.
const (
	Create Kind = iota
	Open
	Read
	Write
	Sync
	SyncDir
	Rename
	Remove
	Truncate
	Lock
	List
	kinds
)

var kindNames = [kinds]string{
	"Create", "Open", "Read", "Write", "Sync", "SyncDir", "Rename", "Remove", "Truncate", "Lock", "List",
}

func (k Kind) String() string { return kindNames[k] }

// Call is a call that is about to be made.
type Call struct {
	Kind Kind
	Name string // current name of the file; empty for SyncDir and List
	To   string // Rename: the new name
	Off  int64  // Read and Write: the offset; Truncate: the new length
	Len  int    // Read and Write: the number of bytes
	N    int    // number of calls of this kind so far, including this one

	data []byte
}

func (c Call) String() string {
	return fmt.Sprintf("%s %d of %q%s at %d, %d bytes", c.Kind, c.N, c.Name, c.To, c.Off, c.Len)
}

// Partial is an error that a test can make a call return. A Write that returns it has written its
// first Bytes bytes. Any other call just fails with Err.
type Partial struct {
	Err   error
	Bytes int
}

func (p Partial) Error() string { return fmt.Sprintf("after %d bytes: %v", p.Bytes, p.Err) }
func (p Partial) Unwrap() error { return p.Err }

// OnCall sets a hook that runs before every call, in the goroutine of the caller and possibly in
// many goroutines at once. OnCall(nil) removes the hook. If the hook returns an error, the call
// fails with this error and has no other effect, except as described for Partial and File.SyncData.
// No lock is held while the hook runs, so the hook may use the file system, in particular Crash.
// Calls that the hook makes run the hook again, so it must not recurse endlessly.
func (f *FS) OnCall(hook func(Call) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

type failure struct {
	kind Kind
	n    int
	err  error
}

// FailCall makes one call fail: the k-th call of this kind, counted from now. If k is 1, the next
// call fails.
func (f *FS) FailCall(kind Kind, k int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = append(f.fails, failure{kind, f.calls[kind] + k, err})
}

// Calls returns the number of calls of a kind so far.
func (f *FS) Calls(kind Kind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[kind]
}

// beforeCall counts a call and runs the hook. It returns the error that the call must fail with.
func (f *FS) beforeCall(op string, c Call) error {
	if c.Kind != SyncDir && c.Kind != List {
		if err := disk.CheckName(op, c.Name); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.calls[c.Kind]++
	c.N = f.calls[c.Kind]
	hook := f.hook
	var err error
	for _, fail := range f.fails {
		if fail.kind == c.Kind && fail.n == c.N {
			err = fail.err
		}
	}
	f.mu.Unlock()
	if hook != nil {
		if e := hook(c); e != nil {
			err = e
		}
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: c.Name, Err: err}
	}
	return nil
}

// Capacity limits the total length of all files; a negative value removes the limit. A write beyond
// the limit writes the bytes that fit and fails with ENOSPC. A Truncate beyond the limit fails with
// ENOSPC and has no effect.
func (f *FS) Capacity(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = bytes
}

// Flip flips one bit of a file permanently: in the content that programs read, in the content that
// survives a crash, and in unsynced writes. It panics if the file is too short.
func (f *FS) Flip(name string, off int64, bit uint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := f.names[name]
	if in == nil || off < 0 || off >= in.current.size || bit > 7 {
		panic(fmt.Sprintf("faulty: no bit %d at %d of %q", bit, off, name))
	}
	in.current.flip(off, bit)
	if off < in.durable.size {
		in.durable.flip(off, bit)
	}
	for n := range in.pending {
		w := &in.pending[n]
		if i := off - w.off; !w.cut && i >= 0 && i < int64(len(w.data)) {
			w.data = slices.Clone(w.data)
			w.data[i] ^= 1 << bit
		}
	}
}
