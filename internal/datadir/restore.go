package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"weir/internal/backup"
	"weir/internal/disk"
	"weir/internal/engine/journal/repair"
)

// Source is a backup to restore. If reading a source fails, Restore adds the name of the source to
// the error, except for the first source, whose name the caller adds.
type Source struct {
	Name string
	io.Reader
	Wanted map[string]bool // files to restore; nil for all
}

// Restore creates a data directory from a backup, or from a chain of backups with the newest first.
// The directory must be empty or missing. Restore verifies every checksum of the backups and every
// record of the journal before a server can use the directory. If Restore fails, it removes the
// files that it created.
func Restore(ctx context.Context, sources []Source, data string) (*backup.Head, *repair.Report, error) {
	into, err := newRestoration(data)
	if err != nil {
		return nil, nil, err
	}
	var newest backup.Head
	for i, s := range sources {
		var head backup.Head
		head, _, err = backup.Read(&cancelable{ctx, s}, func(e backup.Entry, content io.Reader) error {
			if s.Wanted != nil && !s.Wanted[e.Name] {
				return nil
			}
			return into.add(e, content)
		})
		if i == 0 {
			newest = head
		}
		if err != nil {
			if i > 0 {
				err = fmt.Errorf("%s: %w", s.Name, err)
			}
			break
		}
	}
	if err == nil && sources[0].Wanted == nil { // the backup was read as a stream, without OpenChain, so its head is not checked yet
		_, _, err = backup.Chain([]*backup.Summary{{Head: newest}})
	}
	var report *repair.Report
	if err == nil {
		report, err = into.journal.Finish(checkOptions(nil))
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		return nil, nil, errors.Join(err, into.abort())
	}
	return &newest, report, nil
}

// cancelable fails its reads once the context has ended.
type cancelable struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelable) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// restoration fills a data directory. No server accepts the directory until the method Finish of
// the field journal has succeeded.
type restoration struct {
	data    string
	journal *repair.Restore
	files   []string // files that were created beside the journal
	dirs    []string // directories that were created, outer ones first
}

func newRestoration(data string) (*restoration, error) {
	entries, err := os.ReadDir(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() != "lost+found" { // the root of a mounted file system has this directory
			return nil, fmt.Errorf("%s is not empty: it holds %s; restore into an empty directory", data, e.Name())
		}
	}
	if err := refuseForeign(data); err != nil {
		return nil, err
	}
	r := &restoration{data: data}
	if err := r.mkdir(Journal(data)); err != nil {
		return nil, errors.Join(err, r.abort())
	}
	if r.journal, err = repair.NewRestore(disk.OS(Journal(data))); err != nil {
		return nil, errors.Join(fmt.Errorf("restore into %s: %w", data, err), r.abort())
	}
	return r, nil
}

// mkdir makes a directory and its missing parents, which then survive a crash.
func (r *restoration) mkdir(dir string) error {
	made, err := disk.MakeDir(dir)
	r.dirs = append(r.dirs, made...)
	return err
}

// authorityName is the certificate of the local authority, the only file that other users may read.
const authorityName = "tls/ca.pem"

// add writes one file of the backup.
func (r *restoration) add(e backup.Entry, content io.Reader) error {
	dir, name := path.Split(e.Name)
	if dir == journalDir+"/" {
		return r.journal.Add(name, content)
	}
	if !slices.ContainsFunc(keptDirs, func(d string) bool { return strings.HasPrefix(dir, d+"/") }) {
		return fmt.Errorf("%w: this version does not know the file %s", backup.ErrAltered, e.Name)
	}
	where := filepath.Join(r.data, filepath.FromSlash(dir))
	if err := r.mkdir(where); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if e.Name == authorityName {
		mode = 0o644
	}
	f, err := os.OpenFile(filepath.Join(where, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	r.files = append(r.files, f.Name())
	if _, err := io.Copy(f, content); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Chmod(mode); err != nil { // the umask may have removed bits
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return disk.OS(where).SyncDir()
}

// abort removes the files and directories that the restoration created.
func (r *restoration) abort() error {
	var faults []error
	if r.journal != nil {
		faults = append(faults, r.journal.Abort())
	}
	for _, f := range r.files {
		faults = append(faults, os.Remove(f))
	}
	for _, d := range slices.Backward(r.dirs) {
		os.Remove(d) // fails, as it should, if another process has put files into it
	}
	return errors.Join(faults...)
}
