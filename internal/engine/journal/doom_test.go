package journal

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"

	"weir/internal/disk/faulty"
	"weir/internal/engine"
)

// TestFailedDeletion deletes a document, which owns a log, and makes the sync fail. The document
// still exists, so its log can be opened: by a caller that came while the deletion was in flight,
// and by a caller that comes later.
func TestFailedDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		j, d, l := openOne(t, fs, &counting{})
		defer j.Close()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the next segments are prepared: from then on, only the deletion syncs
		hold := make(chan error)
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.Sync {
				return <-hold
			}
			return nil
		})
		deleted := make(chan error, 1)
		go func() { deleted <- j.Delete(background, d.Key, d.Revision) }()
		synctest.Wait()
		opened := make(chan error, 1)
		go func() {
			l, err := j.Open(background, d.Created, &counting{})
			if err == nil {
				err = l.Close()
			}
			opened <- err
		}()
		synctest.Wait()
		hold <- syscall.EIO
		fs.OnCall(nil)
		if err := <-deleted; !errors.Is(err, engine.ErrReadOnly) {
			t.Fatalf("the deletion returned %v, want %v", err, engine.ErrReadOnly)
		}
		if err := <-opened; err != nil {
			t.Errorf("Open during the deletion: %v", err)
		}
		if l, err := j.Open(background, d.Created, &counting{}); err != nil {
			t.Errorf("Open after the failed deletion: %v", err)
		} else if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := j.Get(background, d.Key); err != nil {
			t.Errorf("Get after the failed deletion: %v", err)
		}
	})
}
