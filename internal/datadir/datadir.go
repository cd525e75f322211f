// Package datadir works on whole data directories: it backs them up, restores them, checks and
// repairs them while no server is using them, and copies the contents of one store to another.
package datadir

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"weir/internal/access"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/repair"
	"weir/internal/hub"
)

// journalDir is the directory of the journal in a data directory.
const journalDir = "journal"

// Journal returns the path of the journal in a data directory.
func Journal(data string) string { return filepath.Join(data, journalDir) }

// ErrNoData means that a directory is not the data directory of a server that uses the journal
// engine.
var ErrNoData = errors.New("no Weir data")

// HasJournal reports whether a data directory holds a journal.
func HasJournal(data string) bool {
	_, err := os.Stat(Journal(data))
	return err == nil
}

// NodeLock is the lock file in the data directory of a node of a cluster.
const NodeLock = "nats.lock"

// IsNode reports whether a data directory belongs to a node of a cluster.
func IsNode(data string) bool {
	_, err := os.Stat(filepath.Join(data, NodeLock))
	return err == nil
}

// requireJournal returns an error if a data directory has no journal.
func requireJournal(data string) error {
	switch {
	case HasJournal(data):
		return nil
	case IsNode(data):
		return fmt.Errorf("%s belongs to a node of a cluster; this command works with the journal of a single server only", data)
	}
	return fmt.Errorf("%w in %s; set --data to the data directory", ErrNoData, data)
}

// Check verifies every record of a data directory that no server is using. It changes nothing. The
// function progress may be nil.
func Check(data string, progress func(done, total int64)) (*repair.Report, error) {
	if err := requireJournal(data); err != nil {
		return nil, err
	}
	r, err := repair.Check(disk.OS(Journal(data)), checkOptions(progress))
	if err != nil {
		return nil, explain("check", data, err)
	}
	return r, nil
}

// explain wraps an error of a check or a repair. If the directory is in use, the result says what
// to do.
func explain(doing, data string, err error) error {
	if errors.Is(err, disk.ErrLocked) {
		return fmt.Errorf("a server is using %s; stop it first", data)
	}
	return fmt.Errorf("%s %s: %w", doing, data, err)
}

// checkOptions returns options for a check of all documents. Package hub checks the documents of
// streams, and package access checks those of projects and keys.
func checkOptions(progress func(done, total int64)) repair.CheckOptions {
	return repair.CheckOptions{
		Progress: progress,
		Document: func(d engine.Document, note []byte, entries iter.Seq[*engine.Header]) error {
			if _, ok := hub.StreamOf(d.Key); ok {
				return hub.CheckStream(d, note, entries)
			}
			return access.CheckDocument(d)
		},
	}
}
