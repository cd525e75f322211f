package service_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/access"
	"weir/internal/engine"
	"weir/internal/service/servicetest"
)

// A service on a full store starts although it cannot create or delete the demo stream. It creates
// the stream when there is space again.
func TestDemoOnAFullStore(t *testing.T) {
	e := &demoless{Engine: servicetest.NewDisk()}
	start := func(full bool, demo string) *servicetest.Service {
		t.Helper()
		e.full.Store(full)
		s := servicetest.Start(t, servicetest.Options{Engine: e, KeepEngine: true, Args: []string{"--demo=" + demo}})
		if said := strings.Contains(s.Log.String(), "the demo stream was not"); said != full {
			t.Errorf("with --demo=%s, the service says that the demo stream was not created or deleted: %v, want %v\n%s", demo, said, full, s.Log)
		}
		return s
	}
	demo := func(s *servicetest.Service) int {
		status, _ := ask(t, s, s.Key, "GET", "/streams/"+string(access.DemoStream), "")
		return status
	}
	s := start(true, "true")
	if status := demo(s); status != http.StatusNotFound {
		t.Errorf("the demo stream, which could not be created: %d", status)
	}
	e.full.Store(false)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(time.Minute); demo(s) != http.StatusOK; <-tick.C {
		if time.Now().After(late) {
			t.Fatal("the service did not create the demo stream")
		}
	}
	s.Stop()
	start(true, "false").Stop()
	s = start(false, "false")
	if _, err := s.Hub.Find(context.Background(), access.DemoStream); err == nil {
		t.Error("the demo stream exists after a start with --demo=false")
	}
}

// demoless is an engine that can refuse to create and to delete the demo stream.
type demoless struct {
	engine.Engine
	full atomic.Bool
}

func (e *demoless) refuses(key string) bool {
	return e.full.Load() && strings.HasSuffix(key, string(access.DemoStream))
}

func (e *demoless) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	if e.refuses(key) {
		return engine.Document{}, engine.ErrFull
	}
	return e.Engine.Create(ctx, key, value)
}

func (e *demoless) Delete(ctx context.Context, key string, revision engine.Revision) error {
	if e.refuses(key) {
		return engine.ErrFull
	}
	return e.Engine.Delete(ctx, key, revision)
}

// A stop does not wait until a store that does not answer has opened the demo stream.
func TestStopWhileDemoWaits(t *testing.T) {
	e := &silent{Engine: servicetest.NewDisk(), asked: make(chan struct{}), closed: make(chan struct{})}
	s := servicetest.Start(t, servicetest.Options{Engine: e, Args: []string{"--demo=true"}})
	<-e.asked
	s.Stop()
}

// silent is an engine that does not open logs until it is closed.
type silent struct {
	engine.Engine
	once          sync.Once
	asked, closed chan struct{}
}

func (e *silent) Open(context.Context, engine.LogID, engine.Judge) (engine.Log, error) {
	e.once.Do(func() { close(e.asked) })
	<-e.closed
	return nil, engine.ErrClosed
}

func (e *silent) Close() error {
	close(e.closed)
	return e.Engine.Close()
}
