// Package faulty is an in-memory file system for tests. A test can crash it, make its calls fail,
// fill it and damage its content. A crash loses only changes that the comment of disk.FS allows it
// to lose. Everything else survives unchanged, and tests can rely on that.
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
	names   map[string]*inode // the files that running programs see
	durable map[string]*inode // the files that remain after a crash with LoseAll
	changes []change          // unsynced changes that lead from durable to names, in order
	writes  uint64            // number of the last write; orders the pending writes of all files

	used     int64 // total length of all files that have a name
	capacity int64 // negative if there is no limit

	calls [kinds]int
	hook  func(Call) error
	fails []failure
}

var _ disk.FS = (*FS)(nil)

// change is an unsynced creation, rename or removal.
type change struct {
	from string // name to remove; empty if none
	to   string // name to add; empty if none
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

// inode is a file independent of its name.
type inode struct {
	name    string // last name of the file, which a hook receives in Call.Name
	linked  bool   // the file has a name, so its length counts towards the capacity
	locked  bool
	current content // the content that programs read
	durable content // the content that remains after a crash with LoseAll
	// pending holds the writes since the last SyncData, in order. Writes that were pending when a
	// SyncData failed are in current, but neither in durable nor in pending: as on Linux, a later
	// SyncData does not write them again, and a crash loses them.
	pending []write
}

// write is an unsynced change of a file's content: data at off or, if cut is set, a truncation to
// length off.
type write struct {
	file  *inode
	order uint64
	off   int64
	data  []byte // never changed, because other writes may share it
	cut   bool
}

func (w write) apply(c *content) {
	if w.cut {
		c.truncate(w.off)
	} else {
		c.write(w.data, w.off)
	}
}

// New returns an empty directory without limits or faults.
func New() *FS {
	return &FS{names: map[string]*inode{}, durable: map[string]*inode{}, capacity: -1}
}

// Create creates a file. Until SyncDir, a crash may lose its name, even if its content was synced.
func (f *FS) Create(name string) (disk.File, error) {
	if err := f.beforeCall("create", Call{Kind: Create, Name: name}); err != nil {
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
	if err := f.beforeCall("open", Call{Kind: Open, Name: name}); err != nil {
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

// Rename renames a file. Until SyncDir, a crash may undo the rename: the old name reappears, and so
// does the replaced file.
func (f *FS) Rename(old, new string) error {
	if err := disk.CheckName("rename", new); err != nil {
		return err
	}
	if err := f.beforeCall("rename", Call{Kind: Rename, Name: old, To: new}); err != nil {
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

// Remove removes a file. Open handles stay usable, and the space is free at once.
func (f *FS) Remove(name string) error {
	if err := f.beforeCall("remove", Call{Kind: Remove, Name: name}); err != nil {
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

// List returns the names, sorted.
func (f *FS) List() ([]string, error) {
	if err := f.beforeCall("list", Call{Kind: List}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.names)), nil
}

// SyncDir makes all creations, renames and removals so far durable. If SyncDir fails, these changes
// stay unsynced until a later SyncDir succeeds.
func (f *FS) SyncDir() error {
	if err := f.beforeCall("sync", Call{Kind: SyncDir}); err != nil {
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

// Lock takes the named lock file. Like flock, the lock belongs to the file and not to the name. It
// is free after a crash.
func (f *FS) Lock(name string) (io.Closer, error) {
	if err := f.beforeCall("lock", Call{Kind: Lock, Name: name}); err != nil {
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

// Files returns a copy of everything that can be read.
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

// Size returns the total length of all files.
func (f *FS) Size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}
