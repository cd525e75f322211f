package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Until the new content of a directory is installed, it is in files whose names begin with
// stagedPrefix. For each file of the old content that is not part of the new content, there is an
// empty file. Its name is leftPrefix followed by the name of the old file if Install must remove
// that file, and asidePrefix followed by the name if Install must rename that file. The file
// installMark says that the new content is complete: creating this file is the one step that
// replaces the old content. The names are unusual, so that Install does not touch files of other
// programs.
const (
	stagedPrefix = "stage-new-"
	leftPrefix   = "stage-left-"
	asidePrefix  = "stage-aside-"
	installMark  = "stage-complete"
)

// AsidePrefix is the beginning of the names of files that a Stage has set aside.
const AsidePrefix = "damaged-"

// Stage replaces the content of a directory in one step. A Stage shows the directory as it will be
// after Commit. Changes that are made through the Stage take effect at Commit. Files of the old
// content can be read through the Stage, but must not be written. A crash at any point leaves
// either the old content, possibly with files of the new content beside it, or the complete new
// content, which the next Install puts in place.
type Stage struct {
	FS
	left map[string]string // files that are not part of the new content; the key is the file name, the value is leftPrefix or asidePrefix
}

// NewStage returns a stage without changes. It removes what an interrupted stage has left.
func NewStage(dir FS) (*Stage, error) {
	// Without this sync, a crash could bring back the file installMark of an earlier stage beside
	// new files.
	return &Stage{FS: dir, left: map[string]string{}}, errors.Join(dir.SyncDir(), sweep(dir))
}

// Create implements FS.
func (s *Stage) Create(name string) (File, error) { return s.FS.Create(stagedPrefix + name) }

// Remove implements FS for files that were created through the stage.
func (s *Stage) Remove(name string) error { return s.FS.Remove(stagedPrefix + name) }

// Rename implements FS for files that were created through the stage.
func (s *Stage) Rename(old, new string) error {
	return s.FS.Rename(stagedPrefix+old, stagedPrefix+new)
}

// Open implements FS.
func (s *Stage) Open(name string) (File, error) {
	f, err := s.FS.Open(stagedPrefix + name)
	if errors.Is(err, fs.ErrNotExist) && s.left[name] == "" {
		return s.FS.Open(name)
	}
	return f, err
}

// List implements FS.
func (s *Stage) List() ([]string, error) {
	names, err := s.FS.List()
	var all []string
	for _, name := range names {
		name, staged := strings.CutPrefix(name, stagedPrefix)
		if staged || s.left[name] == "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// Leave leaves a file of the old content out of the new content.
func (s *Stage) Leave(name string) { s.left[name] = leftPrefix }

// SetAside is like Leave, but Commit keeps the file and puts AsidePrefix before its name.
func (s *Stage) SetAside(name string) { s.left[name] = asidePrefix }

// Commit replaces the old content by the new content. All staged files must be synced. After an
// error the old content is still in place, and the caller must call Discard. If Commit returns nil,
// the new content survives a crash. If a file cannot be moved to its place, the next Install moves
// it.
func (s *Stage) Commit() error {
	var faults []error
	for name, prefix := range s.left {
		faults = append(faults, touch(s.FS, prefix+name))
	}
	if err := errors.Join(append(faults, s.SyncDir())...); err != nil {
		return err
	}
	if err := errors.Join(touch(s.FS, installMark), s.SyncDir()); err != nil {
		return err
	}
	_ = Install(s.FS)
	return nil
}

// Discard removes the new content.
func (s *Stage) Discard() error {
	if err := s.FS.Remove(installMark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(s.SyncDir(), sweep(s.FS))
}

// Installing reports whether a directory with these files has new content that Install must put in
// place before the directory is used.
func Installing(names []string) bool { return slices.Contains(names, installMark) }

// Staged reports whether a file belongs to a stage. If Installing returns false, such a file can be
// removed.
func Staged(name string) bool {
	return strings.HasPrefix(name, stagedPrefix) || strings.HasPrefix(name, leftPrefix) || strings.HasPrefix(name, asidePrefix)
}

// Install puts the new content of a directory in place if it is complete, and otherwise does
// nothing. It can be interrupted at any point and run again. The caller must hold the lock of the
// directory.
func Install(dir FS) error {
	names, err := dir.List()
	if err != nil || !Installing(names) {
		return err
	}
	for _, name := range names {
		var fault error
		if to, ok := strings.CutPrefix(name, stagedPrefix); ok {
			fault = dir.Rename(name, to)
		} else if old, ok := strings.CutPrefix(name, leftPrefix); ok {
			fault = dir.Remove(old)
		} else if old, ok := strings.CutPrefix(name, asidePrefix); ok {
			fault = dir.Rename(old, AsidePrefix+old)
		}
		if !errors.Is(fault, fs.ErrNotExist) { // an earlier Install that was interrupted may already have done this step
			err = errors.Join(err, fault)
		}
	}
	// The empty files that name the files to remove are deleted only after the directory is synced.
	// Otherwise a crash could bring back a removed file, and the next Install would not remove it.
	for _, step := range []func() error{dir.SyncDir, func() error { return sweep(dir) }, func() error { return dir.Remove(installMark) }, dir.SyncDir} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return fmt.Errorf("install staged files: %w", err)
	}
	return nil
}

// sweep removes all files of a stage, except installMark.
func sweep(dir FS) error {
	names, err := dir.List()
	for _, name := range names {
		if Staged(name) {
			err = errors.Join(err, dir.Remove(name))
		}
	}
	return err
}

// touch creates an empty file.
func touch(dir FS, name string) error {
	f, err := dir.Create(name)
	if err != nil {
		return err
	}
	return f.Close()
}
