package hub

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// stalling is an engine whose appends wait until the channel release is closed. As in the journal, an
// append goes on when its caller has left, and closing the log waits for it.
type stalling struct {
	engine.Engine
	release chan struct{}
}

type stallingLog struct {
	engine.Log
	release  chan struct{}
	inFlight sync.WaitGroup
}

func (e *stalling) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &stallingLog{Log: l, release: e.release}, err
}

func (l *stallingLog) Append(ctx context.Context, e *engine.Entry) error {
	done := make(chan error, 1)
	l.inFlight.Go(func() {
		<-l.release
		done <- l.Log.Append(context.Background(), e)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *stallingLog) Close() error {
	l.inFlight.Wait()
	return l.Log.Close()
}

// A client hangs up while the disk stalls, and the disk stalls for so long that the stream is
// closed as idle. The batch is stored nevertheless. The stream must know this batch when it is
// opened again: otherwise the next batch would be stored under the same sequence.
func TestStoredAfterTheClientLeft(t *testing.T) {
	for _, seq := range []weir.Seq{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			e := &stalling{memory.New(), make(chan struct{})}
			h := open(t, e, Options{})
			s := made(t, h, nil)
			gone, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, err := s.Publish(gone, at(seq, "a")); err == nil {
				t.Error("the publish succeeded although the disk stalls")
			}
			time.Sleep(3 * idleFor)
			close(e.release)
			synctest.Wait()
			if c, err := s.Cursor(ctx); err != nil || c.Cursor != seq {
				t.Errorf("cursor %d, want %d: %v", c.Cursor, seq, err)
			}
			if ack, err := s.Publish(ctx, &Publish{Batch: weir.Batch{Events: 1, Payload: []byte("b")}}); err != nil || ack.Seq != seq+1 {
				t.Errorf("the next batch has sequence %d, want %d: %v", ack.Seq, seq+1, err)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
