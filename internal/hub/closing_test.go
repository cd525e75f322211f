package hub

import (
	"syscall"
	"testing"
	"testing/synctest"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine/journal"
)

// Until a close is durable, publishers get the same refusals as before the close, because the close
// may never become durable.
func TestCloseIsDurableBeforePublishersLearnOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		j, err := journal.Open(fs, damageable)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		h := open(t, j, Options{})
		defer h.Close()
		s := made(t, h, nil)
		publish(t, s, at(1, "a"))
		fs.OnCall(func(c faulty.Call) error {
			if c.Kind == faulty.Write {
				return syscall.EIO
			}
			return nil
		})
		if _, err := s.Close(ctx); err == nil {
			t.Fatal("the stream was closed, although the disk takes no writes")
		}
		p := at(0, "b")
		defer p.Release()
		if _, err := s.Decide(ctx, p); code(err) != weir.InvalidSequence {
			t.Errorf("sequence 0: %v, want %s", err, weir.InvalidSequence)
		}
	})
}
