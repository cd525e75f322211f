package datadir

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

// Repaired is the result of a repair.
type Repaired struct {
	*journal.Repair
	Directory string       `json:"directory"` // holds the files that were set aside
	Revoked   []access.Key `json:"revoked"`   // keys that a lost record may have revoked
}

// Repair makes a damaged data directory usable again. It copies damaged files to a new directory
// damaged-TIME and keeps every intact record. If it cannot determine which records were lost, one
// of them may have revoked a key. Repair then revokes every key for which this is possible. The
// function progress may be nil.
func Repair(data string, progress func(done, total int64)) (*Repaired, error) {
	if !HasJournal(data) {
		return nil, fmt.Errorf("%w in %s; set --data to the data directory", ErrNoData, data)
	}
	if err := refuseForeign(data); err != nil {
		return nil, err
	}
	result := &Repaired{Revoked: []access.Key{}}
	now := weir.TimeOf(time.Now())
	var err error
	result.Repair, err = journal.RepairJournal(disk.OS(Journal(data)), journal.RepairOptions{
		CheckOptions: checkOptions(progress),
		Aside: func() (disk.FS, error) {
			result.Directory = filepath.Join(data, "damaged-"+now.Std().UTC().Format("20060102T150405.000Z"))
			if err := os.Mkdir(result.Directory, 0o700); err != nil {
				return nil, err
			}
			return disk.OS(result.Directory), disk.OS(data).SyncDir()
		},
		Mend: func(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[engine.Header], unknown int) ([]byte, []engine.Header, error) {
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
	if err != nil {
		return nil, explain("repair", data, err)
	}
	return result, nil
}
