package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"weir/internal/admin"
	"weir/internal/backup"
	"weir/internal/engine/journal"
)

// journalDir is where the journal is, in the data directory.
const journalDir = "journal"

// keptDirs are the directories beside the journal that a backup takes along. What else lies in a data directory is the
// socket, which belongs to the running server, and what a repair set aside.
var keptDirs = []string{"tls"}

// maxKept bounds a file of those: they are read into memory, so that a backup is of one moment.
const maxKept = 16 << 20

// archive is a backup that is about to be written.
type archive struct {
	head  backup.Head
	kept  map[string][]byte // content of files that are not the journal's
	snap  *journal.Snapshot
	files []journal.SnapshotFile
}

var _ admin.Backup = (*archive)(nil)

// newArchive makes a backup of a snapshot and of what else the data directory keeps.
func newArchive(data string, snap *journal.Snapshot) (*archive, error) {
	a := &archive{snap: snap, files: snap.Files(), kept: map[string][]byte{}}
	a.head = backup.Head{Taken: time.Now().UTC().Truncate(time.Millisecond), Version: thisBuild().Version}
	for _, f := range a.files {
		a.head.Files = append(a.head.Files, backup.Entry{Name: journalDir + "/" + f.Name, Size: f.Size})
	}
	for _, dir := range keptDirs {
		if err := a.keep(data, dir); err != nil {
			snap.Close()
			return nil, err
		}
	}
	return a, nil
}

// keep reads the plain files below a directory.
func (a *archive) keep(data, dir string) error {
	return filepath.WalkDir(filepath.Join(data, dir), func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) { // none at all, or gone meanwhile
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(data, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if !backup.Holds(name) {
			return fmt.Errorf("%q cannot be in a backup because of its name: give it another, or take it out of there", path)
		}
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(content) > maxKept {
			return fmt.Errorf("%s has %d bytes, more than a backup takes along", path, len(content))
		}
		a.kept[name] = content
		a.head.Files = append(a.head.Files, backup.Entry{Name: name, Size: int64(len(content))})
		return nil
	})
}

func (a *archive) Size() int64 { return a.head.Size() }
func (a *archive) Close()      { a.snap.Close() }

// Copy implements admin.Backup.
func (a *archive) Copy(ctx context.Context, w io.Writer) error {
	out, err := backup.NewWriter(w, a.head)
	if err != nil {
		return err
	}
	for i, e := range a.head.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := out.Add(func(w io.Writer) error {
			if i < len(a.files) {
				return a.snap.Copy(w, i)
			}
			_, err := w.Write(a.kept[e.Name])
			return err
		})
		if err != nil {
			return err
		}
	}
	var remarks []string
	for _, err := range a.snap.Damages() {
		remarks = append(remarks, err.Error())
	}
	return out.Close(remarks)
}

// backups lets the operator's socket take backups of the running service.
func (svc *service) backups(h *admin.Handler) *admin.Handler {
	h.Backups(func(ctx context.Context) (admin.Backup, error) {
		if svc.store.journal == nil {
			return nil, errNoBackup
		}
		snap, err := svc.store.journal.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		return newArchive(svc.settings.data, snap)
	})
	return h
}
