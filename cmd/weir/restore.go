package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/backup"
	"weir/internal/disk"
	"weir/internal/engine/journal"
)

func restoreCommand() *cobra.Command {
	var data string
	var asJSON bool
	c := &cobra.Command{
		Use: "restore FILE", Short: "Make a data directory from a backup", Args: args("FILE"),
		Long: `Make a data directory from a backup. The directory must be empty, or not exist yet. Every checksum of the backup and
every record of the journal is checked before the directory can be served. - reads standard input.`,
		Example: "  weir restore /backups/weir.tar --data /var/lib/weir\n  zstd -dc weir.tar.zst | weir restore - --data /var/lib/weir",
		RunE: func(c *cobra.Command, got []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return restore(ctx, c, got[0], data, asJSON)
		},
	}
	return operator(c, &data, &asJSON)
}

func restore(ctx context.Context, c *cobra.Command, name, data string, asJSON bool) error {
	source, size, err := openSource(c, name)
	if err != nil {
		return err
	}
	defer source.Close()
	into, err := newRestoration(data)
	if err != nil {
		return err
	}
	start := time.Now()
	p := newProgress(c.ErrOrStderr(), size)
	counted := &counter{r: &cancelable{ctx, source}, progress: p}
	head, _, err := backup.Read(counted, into.add)
	var report *journal.Report
	if err == nil {
		report, err = into.finish()
	}
	p.end()
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		return errors.Join(fmt.Errorf("restore %s: %w", name, err), into.abort())
	}
	r := backupResult{
		File: name, Data: data, Taken: head.Taken, Version: head.Version, Files: len(head.Files), Bytes: counted.n,
		Seconds: time.Since(start).Seconds(), Damages: []string{},
	}
	for _, d := range report.Damages {
		r.Damages = append(r.Damages, inWords(&d))
	}
	line := fmt.Sprintf("%s: %d files, %s in %.1fs, as of %s", data, r.Files, inBytes(r.Bytes), r.Seconds, r.Taken.Format(time.RFC3339))
	return r.say(c, c.OutOrStdout(), asJSON, line,
		"restored as it was backed up, and some of it is damaged: weir check --repair --data "+quoted(data)+" sets that aside")
}

func openSource(c *cobra.Command, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(c.InOrStdin()), 0, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// cancelable stops when the context ends.
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

// restoration fills a data directory. Nobody takes it for one before finish.
type restoration struct {
	data    string
	journal *journal.Restore
	files   []string // made beside the journal
	dirs    []string // made, outer ones first
}

func newRestoration(data string) (*restoration, error) {
	entries, err := os.ReadDir(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() != "lost+found" { // of a file system that is mounted here
			return nil, fmt.Errorf("%s is not empty: it holds %s. A backup is restored into an empty directory", data, e.Name())
		}
	}
	if err := foreign(data); err != nil {
		return nil, err
	}
	r := &restoration{data: data}
	if err := r.mkdir(filepath.Join(data, journalDir)); err != nil {
		return nil, errors.Join(err, r.abort())
	}
	if r.journal, err = journal.NewRestore(disk.OS(filepath.Join(data, journalDir))); err != nil {
		return nil, errors.Join(fmt.Errorf("restore into %s: %w", data, err), r.abort())
	}
	return r, nil
}

// mkdir makes a directory and those above it that are missing.
func (r *restoration) mkdir(dir string) error {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, d)
	}
	for _, d := range slices.Backward(missing) {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
		r.dirs = append(r.dirs, d)
		if err := disk.OS(filepath.Dir(d)).SyncDir(); err != nil {
			return err
		}
	}
	return nil
}

// authorityName is the certificate of the local authority, the only file that others may read.
const authorityName = "tls/ca.pem"

// add writes one file of the backup.
func (r *restoration) add(e backup.Entry, content io.Reader) error {
	dir, name := path.Split(e.Name)
	if dir == journalDir+"/" {
		return r.journal.Add(name, content)
	}
	if !slices.ContainsFunc(keptDirs, func(d string) bool { return strings.HasPrefix(dir, d+"/") }) {
		return fmt.Errorf("%w: it holds %s, which this version does not keep", backup.ErrAltered, e.Name)
	}
	where := filepath.Join(r.data, filepath.FromSlash(dir))
	if err := r.mkdir(where); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if e.Name == authorityName {
		mode = 0o644 // for those who are to trust it
	}
	f, err := os.OpenFile(filepath.Join(where, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	r.files = append(r.files, f.Name())
	if _, err := io.Copy(f, content); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Chmod(mode); err != nil { // whatever the mask is
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return disk.OS(where).SyncDir()
}

func (r *restoration) finish() (*journal.Report, error) {
	return r.journal.Finish(checkOptions(nil))
}

// abort removes what was made.
func (r *restoration) abort() error {
	var faults []error
	if r.journal != nil {
		faults = append(faults, r.journal.Abort())
	}
	for _, f := range r.files {
		faults = append(faults, os.Remove(f))
	}
	for _, d := range slices.Backward(r.dirs) {
		os.Remove(d) // one that is not empty is somebody else's by now
	}
	return errors.Join(faults...)
}
