package faulty

import (
	"fmt"
	"io/fs"

	"weir/internal/disk"
)

// Kind says which method of disk.FS or disk.File a call is.
type Kind uint8

// The kinds of calls that a hook sees. Sync is File.SyncData.
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

// Call is one call that is about to be made.
type Call struct {
	Kind Kind
	Name string // of the file, at this moment; empty for SyncDir and List
	To   string // of a Rename: the other name
	Off  int64  // of a Read or Write: where; of a Truncate: the length to come
	Len  int    // of a Read or Write: how many bytes
	N    int    // how many calls of this kind there were, this one included

	data []byte
}

func (c Call) String() string {
	return fmt.Sprintf("%s %d of %q%s at %d, %d bytes", c.Kind, c.N, c.Name, c.To, c.Off, c.Len)
}

// Partial is an error for a Write that writes its first bytes before it fails. For other calls it is just Err.
type Partial struct {
	Err   error
	Bytes int
}

func (p Partial) Error() string { return fmt.Sprintf("after %d bytes: %v", p.Bytes, p.Err) }
func (p Partial) Unwrap() error { return p.Err }

// OnCall has hook run before every call, in the goroutine that makes it and maybe in many at once; nil takes it away.
// An error from it is what the call fails with, without being made. No lock is held: it may use the file system, and
// Crash above all, but for calls that come back to it.
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

// FailCall fails the k-th call of a kind from here on, once: 1 is the next one.
func (f *FS) FailCall(kind Kind, k int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = append(f.fails, failure{kind, f.calls[kind] + k, err})
}

// Calls is how many calls of a kind there were.
func (f *FS) Calls(kind Kind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[kind]
}

// before counts a call and asks whether it may be made.
func (f *FS) before(op string, c Call) error {
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

// Capacity bounds the sum of the lengths of all files; less than 0 takes the bound away. A write beyond it writes what
// fits and fails with ENOSPC, and so does a Truncate, without any effect.
func (f *FS) Capacity(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = bytes
}

// Flip turns one bit of a file over for good, in what is read, in what is durable and in what is on its way there.
// It panics when the file is not so long.
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
	for _, w := range in.pending {
		if i := off - w.off; !w.cut && i >= 0 && i < int64(len(w.data)) {
			w.data[i] ^= 1 << bit
		}
	}
}
