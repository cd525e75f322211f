package hub

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// A node that is cut off from its store stops as soon as the first stream has given up, however many there are.
func TestCloseApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &away{memory.New()}
		h := open(t, e, Options{})
		for range 100 {
			publish(t, find(t, h, made(t, h, nil).ID), at(1, "x"))
		}
		h.shared = withOthers{e} // who would have had to tell of the streams before
		begun := time.Now()
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != settles {
			t.Errorf("closed after %v, a log after %v", took, settles)
		}
	})
}

// away is an engine whose logs wait for servers when they are closed.
type away struct{ engine.Engine }

const settles = 10 * time.Second

type withOthers struct{ engine.Engine }

func (withOthers) Watch(func(engine.Change))     {}
func (withOthers) CatchUp(context.Context) error { return nil }

func (e *away) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &awayLog{l}, err
}

type awayLog struct{ engine.Log }

func (l *awayLog) Close() error {
	<-time.After(settles)
	return l.Log.Close()
}
