package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/admin"
	"weir/internal/backup"
	"weir/internal/datadir"
	"weir/internal/disk"
)

// backupResult is the result that weir backup and weir restore print when they are done.
type backupResult struct {
	File    string    `json:"file"`
	Data    string    `json:"data"`
	Via     string    `json:"via,omitempty"` // source of the backup: server or directory
	Taken   time.Time `json:"taken"`
	Version string    `json:"version"`
	Files   int       `json:"files"`
	Bytes   int64     `json:"bytes"`
	Seconds float64   `json:"seconds"`
	Earlier int       `json:"earlier"` // files of this backup that earlier backups hold
	Damages []string  `json:"damages"` // damage that the data already had before the backup
}

func backupCommand() *cobra.Command {
	var data string
	var o backupOptions
	var asJSON bool
	c := &cobra.Command{
		Use: "backup FILE", Short: "Back up the data directory to a file or a directory of backups, even while the server is running", Args: args("FILE"),
		Long: `Create a backup file of everything that the server stores. The backup contains everything that was acknowledged before
the command started.

A running server takes the backup itself and keeps serving. If no server is running, the command reads the data
directory itself, and no server can start on it until the backup is done. If FILE is -, the backup is written to
standard output.

With --since, the backup leaves out the files that an earlier backup already holds. A restore then needs both backups.
If FILE is a directory, the backup becomes a new file in it. Unless --full is set, this backup leaves out the files that
the earlier backups in the directory already hold.

Any running node of a cluster can take a backup of the whole cluster. Meanwhile the node needs disk space for one and
an eighth times the size of the data, plus 512 MiB. A backup of a cluster is always complete: --since has no effect on it.

The file contains hashes of API keys, and the private keys of certificates. Only its owner can read it.`,
		Example: "  weir backup /backups/weir.tar\n  weir backup /backups/tuesday.tar --since /backups/monday.tar\n  weir backup /backups/\n  weir backup - --data /var/lib/weir | zstd > weir.tar.zst",
		RunE: func(c *cobra.Command, got []string) error {
			if o.rate < 0 {
				return misuse{fmt.Errorf("--rate %d: below 0", o.rate), c.CommandPath()}
			}
			if o.full && o.since != "" {
				return misuse{errors.New("--full and --since: use one of them"), c.CommandPath()}
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return takeBackup(ctx, c, data, got[0], o, asJSON)
		},
	}
	c.Flags().StringVar(&o.since, "since", "", "leave out what this earlier backup already holds; a backup `file`, or a directory of backups")
	c.Flags().BoolVar(&o.full, "full", false, "if FILE is a directory: leave nothing out, even if there are earlier backups")
	c.Flags().BoolVar(&o.force, "force", false, "replace FILE if it exists")
	c.Flags().Int64Var(&o.rate, "rate", 256, "maximum rate at which a running server reads data for the backup, in `MiB` per second; 0 means unlimited")
	return operator(c, &data, &asJSON)
}

// backupOptions are the flags of weir backup.
type backupOptions struct {
	since       string
	full, force bool
	rate        int64 // MiB per second
}

func takeBackup(ctx context.Context, c *cobra.Command, data, name string, o backupOptions, asJSON bool) error {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		if o.since == "" && !o.full {
			o.since = name
		}
		name = filepath.Join(name, time.Now().UTC().Format("weir-20060102T150405.000Z.tar"))
	}
	var since *backup.Summary
	if o.since != "" {
		latest, ignored, err := datadir.Latest(o.since)
		if err != nil {
			return fmt.Errorf("--since: %w", err)
		}
		for _, why := range ignored {
			fmt.Fprintln(c.ErrOrStderr(), "ignored", why)
		}
		since = latest
	}
	out, err := createTarget(c, name, o.force)
	if err != nil {
		return err
	}
	defer out.discard()
	source, total, via, err := openBackup(ctx, data, o.rate<<20, since)
	if err != nil {
		return err
	}
	defer source.Close()
	start := time.Now()
	p := newProgress(c.ErrOrStderr(), total)
	counted := &counter{progress: p}
	from := counted.reader(source)
	// Verify the backup while it is written, so that a bad one is never reported as good.
	head, remarks, err := backup.Read(io.TeeReader(from, out), func(backup.Entry, io.Reader) error { return nil })
	if err == nil {
		_, err = io.Copy(out, from) // copies the padding after the last file
	}
	p.end()
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		} else if errors.Is(err, backup.ErrShort) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("the server ended the backup early, see its log: %w", err)
		}
		return fmt.Errorf("back up %s: %w", data, err)
	}
	if err := out.keep(); err != nil {
		return err
	}
	r := backupResult{
		File: name, Data: data, Via: via, Taken: head.Taken, Version: head.Version, Files: len(head.Files), Bytes: counted.n, Earlier: len(head.Earlier),
		Seconds: time.Since(start).Seconds(), Damages: append([]string{}, remarks...),
	}
	w := c.OutOrStdout()
	if name == "-" {
		w = c.ErrOrStderr()
	}
	how := map[string]string{"server": "from the running server", "directory": "from the directory"}[via]
	line := fmt.Sprintf("%s: %d files, %s in %.1fs, %s", name, r.Files, size(r.Bytes), r.Seconds, how)
	if r.Earlier > 0 {
		files := "files are"
		if r.Earlier == 1 {
			files = "file is"
		}
		line += fmt.Sprintf("; %d more %s in earlier backups, which a restore needs too", r.Earlier, files)
	}
	return r.say(c, w, asJSON, line,
		"the backup is complete, but some of the data was damaged before: run weir check")
}

// say prints the result, and the damage that was found in the data. If there is damage, it returns
// an error with the text in the parameter fault.
func (r *backupResult) say(c *cobra.Command, w io.Writer, asJSON bool, line, fault string) error {
	if !asJSON {
		fmt.Fprintln(w, line)
	} else if err := json.NewEncoder(w).Encode(r); err != nil {
		return err
	}
	for _, d := range r.Damages {
		fmt.Fprintln(c.ErrOrStderr(), d)
	}
	if len(r.Damages) > 0 {
		return errors.New(fault)
	}
	return nil
}

// openBackup opens a backup as a stream: from the running server, or from the directory if no
// server is running.
func openBackup(ctx context.Context, data string, rate int64, since *backup.Summary) (source io.ReadCloser, size int64, via string, err error) {
	var body bytes.Buffer
	if since != nil {
		if err := json.NewEncoder(&body).Encode(since); err != nil {
			return nil, 0, "", err
		}
	}
	resp, err := admin.Do(ctx, data, "POST", "/backup?rate="+strconv.FormatInt(rate, 10), &body)
	if errors.Is(err, admin.ErrNoServer) {
		source, size, err = datadir.Read(ctx, data, since)
		return source, size, "directory", err
	}
	if err != nil {
		return nil, 0, "", err
	}
	size, _ = strconv.ParseInt(resp.Header.Get(admin.SizeHeader), 10, 64)
	return resp.Body, size, "server", nil
}

// target is the file that a backup is written to. It has a temporary name until the backup is
// complete.
type target struct {
	io.Writer
	file  *os.File
	name  string
	force bool
}

// createTarget creates the file under a temporary name, in the directory of the final name.
func createTarget(c *cobra.Command, name string, force bool) (*target, error) {
	if name == "-" {
		return &target{Writer: c.OutOrStdout()}, nil
	}
	t := &target{name: name, force: force}
	if err := t.checkFree(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Dir(name)); err != nil { // the error of CreateTemp would name the temporary file
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".partial-*") // creates the file with mode 0600
	if err != nil {
		return nil, err
	}
	t.Writer, t.file = f, f
	return t, nil
}

// checkFree returns an error if a file with the final name exists and must not be replaced.
func (t *target) checkFree() error {
	st, err := os.Lstat(t.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s exists and is not a regular file", t.name)
	case !t.force:
		return fmt.Errorf("%s exists; --force replaces it", t.name)
	}
	return nil
}

// keep syncs the file and renames it to its final name.
func (t *target) keep() error {
	if t.file == nil {
		return nil
	}
	if err := t.file.Sync(); err != nil {
		return err
	}
	if err := t.checkFree(); err != nil {
		return err
	}
	if err := os.Rename(t.file.Name(), t.name); err != nil {
		return err
	}
	if err := t.file.Close(); err != nil {
		return err
	}
	t.file = nil
	return disk.OS(filepath.Dir(t.name)).SyncDir()
}

// discard removes the file, unless keep has renamed it.
func (t *target) discard() {
	if t.file != nil {
		t.file.Close()
		os.Remove(t.file.Name())
	}
}
