package line

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/wire"
)

// A caller may have to wait for a running call that gets no answer. Even then it waits for at most
// Patience, counted from its own start.
func TestCoalescedCallsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(&wire.Client{Patience: 10 * time.Second, Life: t.Context()}, 0, Options{})
		defer l.End()
		var all sync.WaitGroup
		defer all.Wait()
		for begin := range 3 {
			all.Go(func() {
				time.Sleep(time.Duration(begin) * time.Second)
				begun := time.Now()
				_, err := l.coalesce(t.Context(), &l.marks, func(ctx context.Context) (uint64, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				})
				took, most := time.Since(begun), l.client.Patience
				if took > most || took < most-2*time.Millisecond || !errors.Is(err, engine.ErrUnavailable) {
					t.Errorf("call %d returned %v after %v, want ErrUnavailable after %v", begin, err, took, most)
				}
			})
		}
	})
}
