package datadir

import (
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/repair"
	"weir/internal/hub"
)

// Repaired is the result of a repair.
type Repaired struct {
	*repair.Result
	Directory string       `json:"directory"` // directory with the files that were set aside; empty if there are none
	Revoked   []access.Key `json:"revoked"`   // keys that a lost record may have revoked
}

// Repair makes a damaged data directory usable again. It moves damaged files to a new directory
// damaged-TIME and keeps every intact record. If it cannot determine which records were lost, one
// of them may have revoked a key. Repair then revokes every key for which this is possible. The
// function progress may be nil.
func Repair(data string, progress func(done, total int64)) (*Repaired, error) {
	if err := requireJournal(data); err != nil {
		return nil, err
	}
	if err := refuseForeign(data); err != nil {
		return nil, err
	}
	result := &Repaired{Revoked: []access.Key{}}
	now := weir.TimeOf(time.Now())
	var err error
	result.Result, err = repair.Run(disk.OS(Journal(data)), repair.Options{
		CheckOptions: checkOptions(progress),
		Mend: func(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[*engine.Header], unknown int) ([]byte, []engine.Header, error) {
			if _, ok := hub.StreamOf(d.Key); !ok {
				return nil, nil, nil
			}
			return hub.MendStream(d, low, note, entries, unknown, now)
		},
		Stale: func(d engine.Document) ([]byte, error) {
			value, key, err := access.Suspend(d, now)
			if value != nil {
				result.Revoked = append(result.Revoked, key)
			}
			return value, err
		},
	})
	if err == nil {
		result.Directory, err = moveAside(data, now)
	}
	if err != nil {
		return nil, explain("repair", data, err)
	}
	return result, nil
}

// moveAside moves the files that repairs have set aside from the journal's directory to a new
// directory, and returns the name of the new directory. It also copies the format file there,
// because the other files cannot be read without it. If no files were set aside, moveAside does
// nothing.
func moveAside(data string, now weir.Time) (dir string, err error) {
	from := Journal(data)
	names, err := disk.OS(from).List()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		old, ok := strings.CutPrefix(name, disk.AsidePrefix)
		if !ok {
			continue
		}
		if dir == "" {
			dir = filepath.Join(data, "damaged-"+now.Std().UTC().Format("20060102T150405.000Z"))
			if err := os.Mkdir(dir, 0o700); err != nil {
				return "", err
			}
		}
		err = errors.Join(err, os.Rename(filepath.Join(from, name), filepath.Join(dir, old)))
	}
	if dir == "" {
		return "", nil
	}
	format, fault := os.ReadFile(filepath.Join(from, "format"))
	if fault == nil {
		fault = os.WriteFile(filepath.Join(dir, "format"), format, 0o600)
	}
	return dir, errors.Join(err, fault, disk.OS(dir).SyncDir(), disk.OS(from).SyncDir(), disk.OS(data).SyncDir())
}
