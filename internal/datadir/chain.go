package datadir

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"weir/internal/backup"
)

// archiveExt is the extension of the backups in a directory of backups.
const archiveExt = ".tar"

// Chain is a backup that is ready to be restored, with the earlier backups that it needs.
type Chain struct {
	Name    string   // file name of the newest backup
	Sources []Source // the newest backup, then the earlier ones, oldest first
	Size    int64    // total size of the sources, in bytes
	files   []*os.File
}

// OpenChain opens a backup and the earlier backups that it needs. The names may be in any order.
// Each is the name of a backup, or of a directory of backups. Of all these backups, OpenChain opens
// the newest one and those that it needs. It returns an error if a needed backup is missing, or if
// a backup cannot be read. It also returns an error if the newest backup does not continue a backup
// that the caller named. Backups in a named directory may be unrelated to the newest one.
func OpenChain(names []string) (c *Chain, err error) {
	c = &Chain{}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	read := map[string]*backup.Summary{} // by file: a file counts once, however often it is named
	var all []*backup.Summary
	named := map[*backup.Summary]string{}
	found := map[*backup.Summary]*os.File{}
	for _, name := range names {
		list, err := archivesIn(name)
		if err != nil {
			return c, err
		}
		explicit := list == nil
		if explicit {
			list = []string{name}
		}
		for _, path := range list {
			file, err := filepath.Abs(path)
			if err != nil {
				return c, err
			}
			if s := read[file]; s != nil {
				if explicit {
					named[s] = path
				}
				continue
			}
			f, s, err := summarize(path)
			if err != nil && path != names[0] { // the caller adds the first name to the error
				err = fmt.Errorf("%s: %w", path, err)
			}
			if err != nil {
				return c, err
			}
			c.files = append(c.files, f)
			read[file] = s
			all, found[s] = append(all, s), f
			if explicit {
				named[s] = path
			}
		}
	}
	chain, wanted, err := backup.Chain(all)
	if err != nil {
		return c, err
	}
	for i, s := range chain {
		delete(named, s)
		if len(wanted[i]) == 0 {
			continue
		}
		f := found[s]
		info, err := f.Stat()
		if err != nil {
			return c, err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return c, err
		}
		c.Sources = append(c.Sources, Source{Name: f.Name(), Reader: f, Wanted: wanted[i]})
		c.Size += info.Size()
	}
	c.Name = c.Sources[0].Name
	for _, path := range slices.Sorted(maps.Values(named)) {
		return c, fmt.Errorf("%w: the backup %s does not continue %s", backup.ErrChain, c.Name, path)
	}
	return c, nil
}

// Close closes the files.
func (c *Chain) Close() {
	for _, f := range c.files {
		f.Close()
	}
}

// archivesIn returns the backups in a directory. It returns nil if name is not that of a directory.
func archivesIn(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return nil, err
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == archiveExt {
			list = append(list, filepath.Join(name, e.Name()))
		}
	}
	if list == nil {
		return nil, fmt.Errorf("%w in %s", ErrNoBackup, name)
	}
	return list, nil
}

// ErrNoBackup means that a directory holds no backup.
var ErrNoBackup = errors.New("there is no backup")

func summarize(path string) (*os.File, *backup.Summary, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	s, err := backup.Summarize(f)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, s, nil
}

// Latest describes the backup that a new backup can continue. The name is that of a backup or of a
// directory of backups. In a directory, Latest chooses the newest backup for which all earlier
// backups that it needs are present. It returns nil if there is none. The result ignored says which
// backups of the directory cannot be used, and why.
func Latest(name string) (latest *backup.Summary, ignored []error, err error) {
	list, err := archivesIn(name)
	if errors.Is(err, ErrNoBackup) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if list == nil {
		f, s, err := summarize(name)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		return s, nil, f.Close()
	}
	var all []*backup.Summary
	for _, path := range list {
		f, s, err := summarize(path)
		if err != nil {
			ignored = append(ignored, fmt.Errorf("%s: %w", path, err))
			continue
		}
		f.Close()
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *backup.Summary) int { return b.Taken.Compare(a.Taken) })
	for i, s := range all {
		_, _, err := backup.Chain(all[i:])
		if err == nil {
			return s, ignored, nil
		}
		ignored = append(ignored, fmt.Errorf("the backup taken at %v: %w", s.Taken, err))
	}
	return nil, ignored, nil
}
