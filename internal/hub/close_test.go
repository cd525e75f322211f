package hub

import (
	"context"
	"sync"
	"testing"

	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// reluctant is an engine whose logs take their time to close: each waits for the others.
type reluctant struct {
	engine.Engine
	closing sync.WaitGroup
}

type reluctantLog struct {
	engine.Log
	e *reluctant
}

func (e *reluctant) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &reluctantLog{l, e}, err
}

func (l *reluctantLog) Close() error {
	l.e.closing.Done()
	l.e.closing.Wait()
	return l.Log.Close()
}

// A log may wait long for servers that are gone: at the end all wait at the same time, and not one after the other.
func TestCloseAtOnce(t *testing.T) {
	e := &reluctant{Engine: memory.New()}
	h := open(t, e, Options{})
	for range 5 {
		e.closing.Add(1)
		put(t, made(t, h, nil), 0)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
