package jetstream

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"weir/internal/engine"
	"weir/internal/engine/enginetest"
	"weir/internal/engine/jetstream/embedded"
)

var stores atomic.Int64

// fixture returns a new store, with its own name, on a running server.
func fixture(t *testing.T, s *embedded.Server) enginetest.Fixture {
	name := fmt.Sprint("store", stores.Add(1))
	t.Cleanup(func() { remove(t, s, name) })
	return enginetest.Fixture{
		Open: func(t *testing.T) engine.Engine { return open(t, s, name) },
		Reopen: func(t *testing.T, e engine.Engine) engine.Engine {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, s, name)
		},
		Crash: func(t *testing.T, e engine.Engine) engine.Engine {
			crash(t, s, e.(*Engine))
			return open(t, s, name)
		},
		Join: func(t *testing.T) engine.Engine { return open(t, s, name) },
	}
}

// connect returns a connection that is closed at the end of the test.
func connect(t *testing.T, s *embedded.Server) *nats.Conn {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func open(t *testing.T, s *embedded.Server, name string) *Engine {
	t.Helper()
	nc := connect(t, s)
	e, err := Open(context.Background(), nc, Options{Name: name, Shards: 2, Room: s.Room, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	connections.Store(e, nc)
	t.Cleanup(func() { connections.Delete(e) })
	return e
}

// connections has the connection of each engine that the function open has returned.
var connections sync.Map

// crash closes the engine's connection. At that moment the server may not have processed all the
// writes that the engine sent. So crash waits until the server has closed the connection. Then it
// stores a message in each shard. The server processes this message after the engine's writes.
func crash(t *testing.T, s *embedded.Server, e *Engine) {
	t.Helper()
	own, _ := connections.Load(e)
	id, err := own.(*nats.Conn).GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	e.client.Close()
	e.Close()
	within := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.Connected(id) {
		select {
		case <-tick.C:
		case <-within:
			t.Fatal("the server still has the connection of the crashed engine")
		}
	}
	nc := connect(t, s)
	for _, sh := range e.shards() {
		if _, err := nc.Request(sh.prefix+"0", nil, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
}

// remove deletes a store, so that the server does no more work for it.
func remove(t *testing.T, s *embedded.Server, name string) {
	t.Helper()
	nc := connect(t, s)
	for _, stream := range []string{"KV_" + name + "-docs", name + "-log-0", name + "-log-1"} {
		answer, err := nc.Request("$JS.API.STREAM.DELETE."+stream, nil, time.Minute)
		var got struct{ Success bool }
		if err == nil {
			err = json.Unmarshal(answer.Data, &got)
		}
		if err != nil || !got.Success {
			t.Errorf("delete %s: %v", stream, err)
		}
	}
}

// quickDir returns a directory in memory if the system has one. Thousands of syncs to disk would
// take long, and the suite does not need them, because it never cuts the power.
func quickDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "weir-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func server(t *testing.T, dir string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// On this engine, each random history of the suite takes many synced writes. So TestMain runs fewer
// histories than the default, unless the command line sets the number.
func TestMain(m *testing.M) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	if !set {
		flag.Set("rapid.checks", "5")
	}
	goleak.VerifyTestMain(m)
}

func TestEngine(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	enginetest.Run(t, func(t *testing.T) enginetest.Fixture { return fixture(t, s) })
}
