//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// OS returns a directory of the operating system. The directory must exist. Files are created with
// mode 0600.
func OS(dir string) FS { return osFS(dir) }

// MakeDir creates a directory of the operating system with mode 0700, and its missing parents. It
// returns the directories that it created, even if it fails. If it returns no error, these
// directories survive a crash.
func MakeDir(dir string) (made []string, err error) {
	var missing []string
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err == nil && !info.IsDir() {
			err = &fs.PathError{Op: "mkdir", Path: d, Err: syscall.ENOTDIR}
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		missing = append(missing, d)
	}
	for _, d := range slices.Backward(missing) {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return made, err
		}
		made = append(made, d)
		if err := OS(filepath.Dir(d)).SyncDir(); err != nil {
			return made, err
		}
	}
	return made, nil
}

type osFS string

func (d osFS) path(op, name string) (string, error) {
	if err := CheckName(op, name); err != nil {
		return "", err
	}
	return filepath.Join(string(d), name), nil
}

func (d osFS) Create(name string) (File, error) {
	return d.open("create", name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (d osFS) Open(name string) (File, error) {
	return d.open("open", name, os.O_RDWR)
}

func (d osFS) open(op, name string, flag int) (File, error) {
	path, err := d.path(op, name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	if flag&os.O_CREATE != 0 {
		overwriteInPlace(f)
	}
	return &osFile{f}, nil
}

func (d osFS) Rename(old, new string) error {
	from, err := d.path("rename", old)
	if err != nil {
		return err
	}
	to, err := d.path("rename", new)
	if err != nil {
		return err
	}
	return os.Rename(from, to)
}

func (d osFS) Remove(name string) error {
	path, err := d.path("remove", name)
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// List leaves out directories, because a data directory that is a mount point contains the
// directory lost+found.
func (d osFS) List() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (d osFS) SyncDir() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Lock uses flock. Such a lock belongs to the open file and not to the process. So a second Lock in
// the same process is refused too, and closing another descriptor of the same file does not release
// the lock.
func (d osFS) Lock(name string) (io.Closer, error) {
	path, err := d.path("lock", name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = control(f, "lock", func(fd int) error { return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = &fs.PathError{Op: "lock", Path: path, Err: ErrLocked}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return osLock{f}, nil
}

type osLock struct{ f *os.File }

// Close unlocks before it closes. If this process is just starting a child, the child has a copy of
// the descriptor until its exec. Without the unlock, that copy would keep the lock taken.
func (l osLock) Close() error {
	err := control(l.f, "unlock", func(fd int) error { return syscall.Flock(fd, syscall.LOCK_UN) })
	return errors.Join(err, l.f.Close())
}

type osFile struct{ f *os.File }

func (f *osFile) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }
func (f *osFile) Truncate(size int64) error               { return f.f.Truncate(size) }
func (f *osFile) Close() error                            { return f.f.Close() }

func (f *osFile) Size() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// control passes the descriptor of f to the function run, which makes a system call. If a signal
// interrupts the system call, control calls run again. The descriptor cannot be closed until run
// has returned, so its number cannot be reused for another file.
func control(f *os.File, op string, run func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	closed := conn.Control(func(fd uintptr) {
		for {
			if err = run(int(fd)); err != syscall.EINTR {
				return
			}
		}
	})
	if closed != nil {
		err = fs.ErrClosed
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}
