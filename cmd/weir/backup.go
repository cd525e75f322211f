package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/admin"
	"weir/internal/backup"
	"weir/internal/disk"
	"weir/internal/engine/journal"
)

// backupResult is what a backup or a restore says when it is done.
type backupResult struct {
	File    string    `json:"file"`
	Data    string    `json:"data"`
	Via     string    `json:"via,omitempty"` // server, or directory
	Taken   time.Time `json:"taken"`
	Version string    `json:"version"`
	Files   int       `json:"files"`
	Bytes   int64     `json:"bytes"`
	Seconds float64   `json:"seconds"`
	Damages []string  `json:"damages"` // what was damaged before it was copied
}

func backupCommand() *cobra.Command {
	var data string
	var asJSON, force bool
	var rate int64
	c := &cobra.Command{
		Use: "backup FILE", Short: "Copy everything the server keeps into a file, also while it runs", Args: args("FILE"),
		Long: `Copy everything the server keeps into a file: whatever was acknowledged before the command began is in it.

A running server is asked through the socket in its data directory and goes on meanwhile. When none runs, the
directory is read, and no server can start on it until the copy is made. - writes to standard output.

The file holds hashes of keys and private keys of certificates: it is made readable for its owner alone.`,
		Example: "  weir backup /backups/weir.tar\n  weir backup - --data /var/lib/weir | zstd > weir.tar.zst",
		RunE: func(c *cobra.Command, got []string) error {
			if rate < 0 {
				return misuse{fmt.Errorf("--rate %d: below 0", rate), c.CommandPath()}
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return takeBackup(ctx, c, data, got[0], force, rate<<20, asJSON)
		},
	}
	c.Flags().BoolVar(&force, "force", false, "replace FILE if it is there")
	c.Flags().Int64Var(&rate, "rate", 256, "`MiB` a second at most that a running server reads; 0 is unlimited")
	return operator(c, &data, &asJSON)
}

func takeBackup(ctx context.Context, c *cobra.Command, data, name string, force bool, rate int64, asJSON bool) error {
	out, err := createTarget(c, name, force)
	if err != nil {
		return err
	}
	defer out.discard()
	source, size, via, err := openBackup(ctx, data, rate)
	if err != nil {
		return err
	}
	defer source.Close()
	start := time.Now()
	p := newProgress(c.ErrOrStderr(), size)
	counted := &counter{r: source, progress: p}
	// The copy is checked while it is written: what is said to be a backup is one.
	head, remarks, err := backup.Read(io.TeeReader(counted, out), func(backup.Entry, io.Reader) error { return nil })
	if err == nil {
		_, err = io.Copy(out, counted) // the rest of the last block
	}
	p.end()
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		} else if errors.Is(err, backup.ErrShort) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("the server broke off: its log says why (%w)", err)
		}
		return fmt.Errorf("backup of %s: %w", data, err)
	}
	if err := out.keep(); err != nil {
		return err
	}
	r := backupResult{
		File: name, Data: data, Via: via, Taken: head.Taken, Version: head.Version, Files: len(head.Files), Bytes: counted.n,
		Seconds: time.Since(start).Seconds(), Damages: append([]string{}, remarks...),
	}
	w := c.OutOrStdout()
	if name == "-" {
		w = c.ErrOrStderr()
	}
	how := map[string]string{"server": "from the running server", "directory": "from the directory, which no server uses"}[via]
	return r.say(c, w, asJSON, fmt.Sprintf("%s: %d files, %s in %.1fs, %s", name, r.Files, inBytes(r.Bytes), r.Seconds, how),
		"the backup is whole, and some of what it holds was damaged before: see weir check")
}

// say says what was done, and what is damaged in it.
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

// openBackup opens the stream of a backup: that of the running server, else one of the directory.
func openBackup(ctx context.Context, data string, rate int64) (source io.ReadCloser, size int64, via string, err error) {
	r, err := http.NewRequestWithContext(ctx, "POST", "http://weir/backup?rate="+strconv.FormatInt(rate, 10), nil)
	if err != nil {
		return nil, 0, "", err
	}
	resp, err := (&http.Client{Transport: socketTransport(data)}).Do(r)
	if isAbsent(err) || errors.Is(err, syscall.EINVAL) { // a path that is too long for a socket has no server
		source, size, err = readDirectory(ctx, data)
		return source, size, "directory", err
	}
	if err != nil {
		return nil, 0, "", askFault(data, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, 0, "", refusal(resp)
	}
	size, _ = strconv.ParseInt(resp.Header.Get(admin.SizeHeader), 10, 64)
	return resp.Body, size, "server", nil
}

// readDirectory is a backup of a directory that no server has open.
func readDirectory(ctx context.Context, data string) (io.ReadCloser, int64, error) {
	dir := filepath.Join(data, journalDir)
	if _, err := os.Stat(dir); err != nil {
		return nil, 0, fmt.Errorf("there is no server and no data in %s (--data names its directory)", data)
	}
	snap, err := journal.OpenSnapshot(disk.OS(dir))
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", dir, err)
	}
	a, err := newArchive(data, snap)
	if err != nil {
		return nil, 0, err
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(a.Copy(ctx, w))
		a.Close()
	}()
	return pipe{r, done}, a.Size(), nil
}

// pipe waits for its writer when it is closed, so that the lock is given back.
type pipe struct {
	*io.PipeReader
	done chan struct{}
}

func (p pipe) Close() error {
	err := p.PipeReader.Close()
	<-p.done
	return err
}

// target is the file of a backup until it is whole.
type target struct {
	io.Writer
	file  *os.File
	name  string
	force bool
}

// createTarget begins a file under a temporary name beside its own.
func createTarget(c *cobra.Command, name string, force bool) (*target, error) {
	if name == "-" {
		return &target{Writer: c.OutOrStdout()}, nil
	}
	t := &target{name: name, force: force}
	if err := t.free(); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".partial-*") // mode 0600
	if err != nil {
		return nil, err
	}
	t.Writer, t.file = f, f
	return t, nil
}

func (t *target) free() error {
	st, err := os.Lstat(t.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is there, and no plain file", t.name)
	case !t.force:
		return fmt.Errorf("%s is there already: --force replaces it", t.name)
	}
	return nil
}

// keep gives the file its name, once it is durable.
func (t *target) keep() error {
	if t.file == nil {
		return nil
	}
	if err := t.file.Sync(); err != nil {
		return err
	}
	if err := t.free(); err != nil {
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

// discard removes what was not kept.
func (t *target) discard() {
	if t.file != nil {
		t.file.Close()
		os.Remove(t.file.Name())
	}
}
