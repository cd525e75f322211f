package hub

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// A hub that cannot reach its store closes all logs concurrently. So closing the hub takes as long
// as closing one log, however many streams are open.
func TestCloseWithUnavailableStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &unavailable{Engine: memory.New()}
		h := open(t, e, Options{})
		for range 100 {
			publish(t, find(t, h, made(t, h, nil).ID), at(1, "x"))
		}
		begun := time.Now()
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != timeout {
			t.Errorf("closing the hub took %v, want %v, the time that one log takes", took, timeout)
		}
	})
}

// If a stream cannot be opened, every caller gets the error after one attempt. No caller waits for
// several attempts in a row.
func TestOpenWithUnavailableStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &unavailable{Engine: memory.New()}
		h := open(t, e, Options{})
		defer h.Close()
		st := find(t, h, made(t, h, nil).ID)
		e.cutOff.Store(true)
		begun := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := st.Batch(ctx, 1); code(err) != weir.StorageUnavailable || time.Since(begun) != timeout {
					t.Errorf("got %v after %v, want an error after %v", err, time.Since(begun), timeout)
				}
			})
		}
		all.Wait()
		e.cutOff.Store(false)
		if _, err := st.Batch(ctx, 1); code(err) != weir.StreamNotFound {
			t.Errorf("using the stream after the store is available again: %v", err)
		}
	})
}

// The error of a call that changes something says that the change may have been stored. The error of a
// read does not.
func TestUnavailableStoreAfterChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &unavailable{Engine: memory.New()}
		h := open(t, e, Options{})
		defer h.Close()
		st := find(t, h, made(t, h, nil).ID)
		publish(t, st, at(1, "x"))
		e.cutOff.Store(true)
		_, read := st.Batch(ctx, 2)
		_, created := h.Create(ctx, Spec{ID: "another", Project: "p", RetentionSeconds: 60, MaxBytes: weir.MinMaxBytes, Mode: weir.JSON})
		name := "another"
		_, changed := st.Change(ctx, Change{Name: &name}) // stores the change, and fails to read the stream after it
		for err, changes := range map[error]bool{read: false, created: true, changed: true} {
			if code(err) != weir.StorageUnavailable || strings.Contains(err.Error(), "may have taken effect") != changes {
				t.Errorf("a call that changes something: %v; it returned %v", changes, err)
			}
		}
		e.cutOff.Store(false)
	})
}

// unavailable is an engine whose logs take 10 s (the constant timeout) to close, as if the servers
// did not answer. While the field cutOff is set, opening a log and creating a document fail after the
// same time, and CatchUp fails at once.
type unavailable struct {
	engine.Engine
	cutOff atomic.Bool
}

const timeout = 10 * time.Second

func (e *unavailable) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	if e.cutOff.Load() {
		<-time.After(timeout)
		return nil, engine.ErrUnavailable
	}
	l, err := e.Engine.Open(ctx, id, j)
	return &unavailableLog{l, e}, err
}

func (e *unavailable) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	if e.cutOff.Load() {
		<-time.After(timeout)
		return engine.Document{}, engine.ErrUnavailable
	}
	return e.Engine.Create(ctx, key, value)
}

type unavailableLog struct {
	engine.Log
	e *unavailable
}

func (l *unavailableLog) CatchUp(ctx context.Context) error {
	if l.e.cutOff.Load() {
		return engine.ErrUnavailable
	}
	return l.Log.CatchUp(ctx)
}

func (l *unavailableLog) Close() error {
	<-time.After(timeout)
	return l.Log.Close()
}
