package datadir

import (
	"context"
	"errors"
	"os"

	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
)

// Gather prepares a backup of a store that is not a journal, while servers go on using the store. It
// copies the store into a journal in the directory work, verifies the copy, and returns a backup of
// that journal, which Restore accepts like any other. The backup holds everything that was
// acknowledged before the call, and the other files that the data directory keeps. It leaves out
// what concerns only that store: see staysBehind.
//
// Gather removes what an earlier call left in the directory work. Closing the backup removes the
// directory.
func Gather(ctx context.Context, from engine.Engine, data, work string) (*Archive, error) {
	if err := os.RemoveAll(work); err != nil {
		return nil, err
	}
	if _, err := disk.MakeDir(Journal(work)); err != nil {
		return nil, err
	}
	j, err := journal.Open(disk.OS(Journal(work)), journal.Options{})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(work))
	}
	release := func() error { return errors.Join(j.Close(), os.RemoveAll(work)) }
	a, err := gather(ctx, from, j, data)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	a.release = release
	return a, nil
}

func gather(ctx context.Context, from engine.Engine, j *journal.Journal, data string) (*Archive, error) {
	if err := newTransfer(from, j, func(Copied) {}).copyAll(ctx); err != nil {
		return nil, err
	}
	snap, err := j.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return NewArchive(data, snap, nil)
}
