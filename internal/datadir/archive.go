package datadir

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"weir/internal/backup"
	"weir/internal/build"
	"weir/internal/disk"
	"weir/internal/engine/journal"
)

// keptDirs are the directories beside the journal that a backup includes. A data directory also
// contains the socket, which belongs to the running server, and files that a repair set aside. A
// backup leaves these out.
var keptDirs = []string{"tls"}

// maxKept is the largest allowed size, in bytes, of a file in keptDirs. Such files are read into
// memory when a backup begins, so that all of them are from the same moment.
const maxKept = 16 << 20

// Archive is a backup that is ready to be written. Until Close, the files of its snapshot are kept
// even if the journal no longer needs them.
type Archive struct {
	head  backup.Head
	kept  map[string][]byte // contents of the files beside the journal
	snap  *journal.Snapshot
	files map[string]int // files of the journal; the key is the name in the backup, the value is the number in the snapshot

	release func() error // removes the journal if it is temporary, as in a backup of a cluster; otherwise nil
}

// NewArchive prepares a backup of a journal's snapshot and of the other files that the data
// directory keeps. If the parameter since is not nil, it describes an earlier backup, and the new
// backup leaves out the segments (files of the journal) that the earlier one holds. NewArchive
// takes ownership of the snapshot.
func NewArchive(data string, snap *journal.Snapshot, since *backup.Summary) (*Archive, error) {
	a := &Archive{snap: snap, files: map[string]int{}, kept: map[string][]byte{}}
	a.head = backup.Head{Taken: time.Now().UTC().Truncate(time.Millisecond), Version: build.This().Version}
	for i, f := range snap.Files() {
		e := backup.Entry{Name: journalDir + "/" + f.Name, Size: f.Size, Seal: f.Seal}
		a.head.Files, a.files[e.Name] = append(a.head.Files, e), i
	}
	if since != nil {
		a.head.Continue(since)
		for _, e := range a.head.Earlier {
			snap.Skip(a.files[e.Name])
		}
	}
	for _, dir := range keptDirs {
		if err := a.keep(data, dir); err != nil {
			snap.Close()
			return nil, err
		}
	}
	return a, nil
}

// ParseSummary decodes the JSON description of an earlier backup. It returns nil for an empty text.
func ParseSummary(text []byte) (*backup.Summary, error) {
	if len(text) == 0 {
		return nil, nil
	}
	s := new(backup.Summary)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, err
	}
	return s, s.Check()
}

// keep reads the regular files below a directory. Files that are missing, or vanish meanwhile, are
// skipped.
func (a *Archive) keep(data, dir string) error {
	return filepath.WalkDir(filepath.Join(data, dir), func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
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
			return fmt.Errorf("back up %q: a backup cannot hold a file of this name; rename or remove it", path)
		}
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(content) > maxKept {
			return fmt.Errorf("back up %s: %d bytes, more than the limit of %d for files beside the journal", path, len(content), maxKept)
		}
		a.kept[name] = content
		a.head.Files = append(a.head.Files, backup.Entry{Name: name, Size: int64(len(content))})
		return nil
	})
}

// Size returns the approximate number of bytes that Copy writes.
func (a *Archive) Size() int64 { return a.head.Size() }

// Close releases the snapshot.
func (a *Archive) Close() error {
	a.snap.Close()
	if a.release != nil {
		return a.release()
	}
	return nil
}

// Copy writes the backup. If stored data is damaged, Copy records the damage in the backup and
// continues without an error.
func (a *Archive) Copy(ctx context.Context, w io.Writer) error {
	out, err := backup.NewWriter(w, a.head)
	if err != nil {
		return err
	}
	for _, e := range a.head.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := out.Add(func(w io.Writer) error {
			if i, ok := a.files[e.Name]; ok {
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

// Read streams a backup of a directory that no server has open. It also returns the approximate
// size of the backup in bytes. No server can start on the directory until the stream is closed. The
// parameter since has the same meaning as in NewArchive.
func Read(ctx context.Context, data string, since *backup.Summary) (io.ReadCloser, int64, error) {
	dir := Journal(data)
	if IsNode(data) {
		return nil, 0, fmt.Errorf("no server is running on %s, which belongs to a node of a cluster; set --data to the data directory of a running node", data)
	}
	if !HasJournal(data) {
		return nil, 0, fmt.Errorf("no server is running, and there is %w in %s; set --data to the data directory", ErrNoData, data)
	}
	snap, err := journal.OpenSnapshot(disk.OS(dir))
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", dir, err)
	}
	a, err := NewArchive(data, snap, since)
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

// pipe is the stream that Read returns. Close waits for the goroutine that writes the backup, so
// that the lock on the directory is released when Close returns.
type pipe struct {
	*io.PipeReader
	done chan struct{}
}

func (p pipe) Close() error {
	err := p.PipeReader.Close()
	<-p.done
	return err
}
