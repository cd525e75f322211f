package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"weir/internal/disk"
)

// A repair and a restore build the new content of a directory beside the old content, in files whose
// names begin with stagedPrefix. An empty file whose name begins with gonePrefix stands for a file
// of the old content that has no place in the new one. The file "install" says that the new content
// is complete: creating it is the one step that replaces the old content.
const (
	stagedPrefix = "new-"
	gonePrefix   = "gone-"
	installFile  = "install"
)

// stage is a directory as it will be once its new content is installed. All changes made through a
// stage are staged. Files of the old content can be read through it, and must not be written.
type stage struct {
	disk.FS
	gone map[string]bool // files of the old content that are left out
}

// newStage returns an empty stage. It removes what an interrupted repair has staged. The sync before
// that makes sure that a crash does not bring back a file "install" of an earlier stage.
func newStage(dir disk.FS) (*stage, error) {
	return &stage{FS: dir, gone: map[string]bool{}}, errors.Join(dir.SyncDir(), sweep(dir))
}

func (s *stage) Create(name string) (disk.File, error) { return s.FS.Create(stagedPrefix + name) }
func (s *stage) Remove(name string) error              { return s.FS.Remove(stagedPrefix + name) }
func (s *stage) Rename(old, new string) error          { return s.FS.Rename(stagedPrefix+old, stagedPrefix+new) }

func (s *stage) Open(name string) (disk.File, error) {
	f, err := s.FS.Open(stagedPrefix + name)
	if errors.Is(err, fs.ErrNotExist) && !s.gone[name] {
		return s.FS.Open(name)
	}
	return f, err
}

func (s *stage) List() ([]string, error) {
	names, err := s.FS.List()
	var all []string
	for _, name := range names {
		name, staged := strings.CutPrefix(name, stagedPrefix)
		if staged || !s.gone[name] {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// commit replaces the old content of the directory by the new content. All staged files must be
// synced. After an error the old content is in place, and discard must follow. After a crash, and if
// install fails, the next opening installs the new content.
func (s *stage) commit() error {
	var faults []error
	for name := range s.gone {
		faults = append(faults, touch(s.FS, gonePrefix+name))
	}
	if err := errors.Join(append(faults, s.SyncDir())...); err != nil {
		return err
	}
	if err := errors.Join(touch(s.FS, installFile), s.SyncDir()); err != nil {
		return err
	}
	_ = install(s.FS)
	return nil
}

// discard removes the new content.
func (s *stage) discard() error {
	if err := absent(s.FS.Remove(installFile)); err != nil {
		return err
	}
	return errors.Join(s.SyncDir(), sweep(s.FS))
}

// install puts the new content of a directory in place if it is complete. It can be interrupted at
// any point and run again.
func install(dir disk.FS) error {
	names, err := dir.List()
	if err != nil || !slices.Contains(names, installFile) {
		return err
	}
	for _, name := range names {
		if to, ok := strings.CutPrefix(name, stagedPrefix); ok {
			err = errors.Join(err, dir.Rename(name, to))
		} else if old, ok := strings.CutPrefix(name, gonePrefix); ok {
			err = errors.Join(err, absent(dir.Remove(old)))
		}
	}
	// The marks for removed files must be the last to go: without them, removals that a crash undoes
	// would not be repeated.
	if err = errors.Join(err, dir.SyncDir()); err == nil {
		err = errors.Join(sweep(dir), dir.Remove(installFile), dir.SyncDir())
	}
	if err != nil {
		return fmt.Errorf("install staged files: %w", err)
	}
	return nil
}

// isStaged reports whether a file is only part of a stage.
func isStaged(name string) bool {
	return strings.HasPrefix(name, stagedPrefix) || strings.HasPrefix(name, gonePrefix)
}

// sweep removes all staged files.
func sweep(dir disk.FS) error {
	names, err := dir.List()
	for _, name := range names {
		if isStaged(name) {
			err = errors.Join(err, dir.Remove(name))
		}
	}
	return err
}

// touch creates an empty file.
func touch(dir disk.FS, name string) error {
	f, err := dir.Create(name)
	if err != nil {
		return err
	}
	return f.Close()
}

// absent returns the error of a removal, or nil if there was nothing to remove.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
