// Package faulty is a file system in memory that can be crashed, failed, filled and damaged at will. It takes away what
// the comment of disk.FS says that a crash may take, and keeps the rest to the byte, so that a test may demand the rest.
package faulty

import (
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"weir/internal/disk"
)

// FS is one directory. All methods may be called from many goroutines at once.
type FS struct {
	mu      sync.Mutex
	names   map[string]*inode // what running programs see
	durable map[string]*inode // what a crash that loses everything leaves
	changes []change          // from durable to names, in order
	writes  uint64            // numbers the pending writes of all files in one order

	used     int64 // bytes of all files that have a name
	capacity int64 // negative when there is no bound

	calls [kinds]int
	hook  func(Call) error
	fails []failure
}

var _ disk.FS = (*FS)(nil)

// change is a creation, rename or removal that was not synced.
type change struct {
	from string // the name that is taken away, if any
	to   string // the name that is given, if any
	file *inode
}

func (c change) apply(names map[string]*inode) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.file
	}
}

// inode is a file apart from its name.
type inode struct {
	name    string // the last it had, for hooks
	linked  bool   // it has a name, so its bytes count
	locked  bool
	current content // what is read
	durable content // what a crash that loses everything leaves
	// pending are the writes since the last SyncData, in order. Current is not durable plus pending: what was
	// pending when a SyncData failed is in current alone.
	pending []write
}

// write is a change of a file's content that was not synced: data at off, or the length off when cut is set.
type write struct {
	file  *inode
	order uint64
	off   int64
	data  []byte
	cut   bool
}

func (w write) apply(c *content) {
	if w.cut {
		c.truncate(w.off)
	} else {
		c.write(w.data, w.off)
	}
}

// New is an empty directory without bounds or faults.
func New() *FS {
	return &FS{names: map[string]*inode{}, durable: map[string]*inode{}, capacity: -1}
}

// Create makes a file. Its name is gone after a crash until SyncDir, whatever was synced of its content.
func (f *FS) Create(name string) (disk.File, error) {
	if err := f.before("create", Call{Kind: Create, Name: name}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	return &file{fs: f, inode: f.create(name)}, nil
}

func (f *FS) create(name string) *inode {
	in := &inode{name: name, linked: true}
	f.change(change{to: name, file: in})
	return in
}

func (f *FS) change(c change) {
	c.apply(f.names)
	f.changes = append(f.changes, c)
}

// Open opens an existing file.
func (f *FS) Open(name string) (disk.File, error) {
	if err := f.before("open", Call{Kind: Open, Name: name}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	in := f.names[name]
	if in == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &file{fs: f, inode: in}, nil
}

// Rename gives a file another name. A crash before SyncDir may undo it: the old name is back, and what had the new one.
func (f *FS) Rename(old, new string) error {
	if err := disk.CheckName("rename", new); err != nil {
		return err
	}
	if err := f.before("rename", Call{Kind: Rename, Name: old, To: new}); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	in := f.names[old]
	if in == nil {
		return &fs.PathError{Op: "rename", Path: old, Err: fs.ErrNotExist}
	}
	if old == new {
		return nil
	}
	f.unlink(f.names[new])
	in.name = new
	f.change(change{from: old, to: new, file: in})
	return nil
}

// Remove takes the name away. What is open stays usable; the space is free at once.
func (f *FS) Remove(name string) error {
	if err := f.before("remove", Call{Kind: Remove, Name: name}); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	in := f.names[name]
	if in == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	f.unlink(in)
	f.change(change{from: name})
	return nil
}

func (f *FS) unlink(in *inode) {
	if in != nil {
		in.linked = false
		f.used -= in.current.size
	}
}

// List returns the names in order.
func (f *FS) List() ([]string, error) {
	if err := f.before("list", Call{Kind: List}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.names)), nil
}

// SyncDir makes creations, renames and removals so far durable. One that fails leaves them as they were: not synced.
func (f *FS) SyncDir() error {
	if err := f.before("sync", Call{Kind: SyncDir}); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.changes {
		c.apply(f.durable)
	}
	f.changes = nil
	return nil
}

// Lock takes the named lock file. Like a flock it belongs to the file and not to the name, and is free after a crash.
func (f *FS) Lock(name string) (io.Closer, error) {
	if err := f.before("lock", Call{Kind: Lock, Name: name}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	in := f.names[name]
	if in == nil {
		in = f.create(name)
	}
	if in.locked {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: disk.ErrLocked}
	}
	in.locked = true
	return &lock{fs: f, inode: in}, nil
}

type lock struct {
	fs    *FS
	inode *inode
	given bool
}

func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.given {
		return &fs.PathError{Op: "unlock", Path: l.inode.name, Err: fs.ErrClosed}
	}
	l.given = true
	l.inode.locked = false
	return nil
}

// Files is a copy of everything that can be read.
func (f *FS) Files() map[string][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := make(map[string][]byte, len(f.names))
	for name, in := range f.names {
		b := make([]byte, in.current.size)
		in.current.read(b, 0)
		files[name] = b
	}
	return files
}

// Size is the sum of the lengths of all files.
func (f *FS) Size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}
