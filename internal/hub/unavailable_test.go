package hub

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// A node that is cut off from its store stops as soon as the first stream has given up, however
// many there are.
func TestCloseApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &away{Engine: memory.New()}
		h := open(t, e, Options{})
		for range 100 {
			publish(t, find(t, h, made(t, h, nil).ID), at(1, "x"))
		}
		begun := time.Now()
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != settles {
			t.Errorf("closed after %v, a log after %v", took, settles)
		}
	})
}

// Who asks for a stream that cannot be opened now waits as long as an opening takes, and not for
// those who asked before.
func TestOpenApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &away{Engine: memory.New()}
		h := open(t, e, Options{})
		defer h.Close()
		st := find(t, h, made(t, h, nil).ID)
		e.apart.Store(true)
		begun := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := st.Batch(ctx, 1); code(err) != weir.StorageUnavailable || time.Since(begun) != settles {
					t.Errorf("%v after %v, an opening fails after %v", err, time.Since(begun), settles)
				}
			})
		}
		all.Wait()
		e.apart.Store(false)
		if _, err := st.Batch(ctx, 1); code(err) != weir.StreamNotFound {
			t.Errorf("when it can be opened: %v", err)
		}
	})
}

// away is an engine whose logs wait for servers when they are closed, and when they are opened
// while it is apart.
type away struct {
	engine.Engine
	apart atomic.Bool
}

const settles = 10 * time.Second

func (e *away) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	if e.apart.Load() {
		<-time.After(settles)
		return nil, engine.ErrUnavailable
	}
	l, err := e.Engine.Open(ctx, id, j)
	return &awayLog{l}, err
}

type awayLog struct{ engine.Log }

func (l *awayLog) Close() error {
	<-time.After(settles)
	return l.Log.Close()
}
