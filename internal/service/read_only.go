package service

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"weir/internal/disk"
	"weir/internal/engine"
)

// probeFile is the file in the data directory with which the service tests whether the disk accepts
// writes.
const probeFile = "probe.tmp"

// failure holds the error that ends a service.
type failure chan error

// report stores an error, unless there is one already.
func (f failure) report(err error) {
	select {
	case f <- err:
	default:
	}
}

// watchFailures passes on the failure of a listener. It also ends the service when the store has
// been read-only for the time that --exit-when-read-only allows. Such a store accepts writes only
// after it was opened again, so a supervisor has to restart the service. While the disk refuses a
// test file, a restart would make things worse: the new process could not open the store, so it
// could not even serve reads. So the service continues, and tests the disk again after the same
// time.
func (svc *Service) watchFailures() {
	grace := svc.settings.ExitWhenReadOnly
	var tick <-chan time.Time
	if grace > 0 {
		t := time.NewTicker(min(grace, time.Second))
		defer t.Stop()
		tick = t.C
	}
	var since time.Time // start of the current grace period; zero while the store is not read-only
	for {
		select {
		case err := <-svc.server.Failed():
			svc.failed.report(err)
			return
		case <-svc.stopping:
			return
		case <-tick:
		}
		status := svc.engine.Status()
		switch {
		case status.State != engine.ReadOnly:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
			svc.logger.Error("the store became read-only", "error", status.Reason, "exit_in", grace)
		case time.Since(since) >= grace:
			since = time.Now()
			if err := probe(disk.OS(svc.settings.Data)); err != nil {
				svc.logger.Error("the store is read-only, and the disk still refuses writes", "error", err, "next_test_in", grace)
				continue
			}
			svc.logger.Error("exiting because the store is read-only and a restart may cure it", "error", status.Reason)
			svc.failed.report(fmt.Errorf("the store was read-only for %v: %w", grace, status.Reason))
			return
		}
	}
}

// probe writes a file, syncs it and removes it.
func probe(dir disk.FS) error {
	if err := dir.Remove(probeFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := dir.Create(probeFile)
	if err != nil {
		return err
	}
	return errors.Join(f.WriteAt(0, make([]byte, 4096)), f.SyncData(), f.Close(), dir.Remove(probeFile), dir.SyncDir())
}
