// Package servicetest starts services for tests. A test gets the service that weir serve starts, on
// free ports of 127.0.0.1, with a project and a key. The service stops when the test ends.
package servicetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/hub"
	"weir/internal/service"
	"weir/internal/settings"
)

// grace is how long requests in flight may take when a service stops. Most tests have closed their
// clients by then. Only a test that left a request open waits for the whole period.
const grace = 10 * time.Second

// Options say how a service differs from the default. By default, HTTP is on a free port. HTTPS,
// metrics and the demo are off. There are no rate limits, and the engine stores everything in
// memory.
type Options struct {
	// Args are arguments of weir serve. They override the defaults.
	Args []string
	// Engine, if set, stores the data. The service closes the engine when it stops. If KeepEngine
	// is set, the engine stays open, so that another service can start on it.
	Engine     engine.Engine
	KeepEngine bool
	// Journal stores the data in a journal in the data directory, as weir serve does by default.
	Journal bool
	// Data is a data directory that outlives the service, so that another service can start on it.
	// The default is a directory that is removed when the test ends.
	Data string
	// LogLevel is the lowest level that Log holds. The default is slog.LevelInfo.
	LogLevel slog.Level
	// Wrap and Now have the same meaning as in service.Options.
	Wrap func(http.Handler) http.Handler
	Now  func() time.Time
}

// Service is a running service. All its methods may be called concurrently.
type Service struct {
	*service.Service

	// The URLs of the listeners, without a trailing slash. The URL of a listener that is off is
	// empty. They may differ from the address that links start with: see the method URL and the
	// flag --base-url.
	HTTP, HTTPS, Metrics string

	Data    string         // the data directory
	Log     *Log           // everything that the service has logged
	Project weir.ProjectID // a project without streams
	Key     string         // a live key of Project, with all permissions

	t    testing.TB
	stop sync.Once
}

// starting is held while a service starts, so that services start one at a time. Opening the admin
// socket changes the file mode mask (umask) of the process for a moment. A directory that another
// service created in this moment would be unusable.
var starting sync.Mutex

// Start starts a service and stops it when the test ends. If starting or stopping the service
// returns an error, the test fails.
//
// Start calls only the methods Helper, Fatal, Error and Cleanup of t. TestMain, which has no
// testing.TB, can pass a type that implements these four.
func Start(t testing.TB, o Options) *Service {
	t.Helper()
	s := &Service{t: t, Data: o.Data, Log: new(Log)}
	if err := s.start(o); err != nil {
		t.Fatal(err)
	}
	p, err := s.Access.EnsureProject(context.Background(), "test") // the project may exist already, if an earlier service used the same data
	if err != nil {
		t.Fatal(err)
	}
	s.Project = p.ID
	s.Key = s.NewKey()
	return s
}

func (s *Service) start(o Options) error {
	starting.Lock()
	defer starting.Unlock()
	if s.Data == "" {
		// The path of t.TempDir contains the name of the test. A long name would make the path of
		// the admin socket longer than the system allows.
		dir, err := os.MkdirTemp("", "weir-")
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { os.RemoveAll(dir) })
		s.Data = dir
	}
	args := []string{
		"--data", s.Data, "--http", "127.0.0.1:0", "--https", "off", "--metrics", "off", "--demo=false",
		"--rate-live", "0", "--rate-test", "0", "--rate-demo", "0", "--rate-anonymous", "0",
	}
	parsed, err := settings.Parse(append(args, o.Args...)...)
	if err != nil {
		return err
	}
	if o.Engine == nil && !o.Journal {
		o.Engine = memory.New()
	}
	if o.KeepEngine {
		o.Engine = kept{o.Engine}
	}
	s.Service, err = service.Start(context.Background(), service.Options{
		Settings: parsed, Engine: o.Engine, Wrap: o.Wrap, Now: o.Now,
		Logger: slog.New(slog.NewTextHandler(s.Log, &slog.HandlerOptions{Level: o.LogLevel})),
	})
	if err != nil {
		return fmt.Errorf("start the service: %w", err)
	}
	s.t.Cleanup(s.Stop)
	listeners := map[string]*string{"http": &s.HTTP, "https": &s.HTTPS, "metrics": &s.Metrics}
	for pairs := s.Addresses(); len(pairs) > 0; pairs = pairs[2:] {
		if url := listeners[pairs[0].(string)]; url != nil {
			*url = pairs[1].(string)
		}
	}
	return nil
}

// kept is an engine that stays open when a service closes it.
type kept struct{ engine.Engine }

func (kept) Close() error { return nil }

// Stop stops the service as weir serve does when it gets SIGTERM. If a test does not call Stop, the
// service stops when the test ends.
func (s *Service) Stop() {
	s.stop.Do(func() {
		if err := s.Service.Stop(grace); err != nil {
			s.t.Error("stop the service:", err)
		}
	})
}

// NewKey creates a live key of Project with these permissions. Without arguments, the key has all
// permissions.
func (s *Service) NewKey(may ...access.Permission) string {
	s.t.Helper()
	_, secret, err := s.Access.CreateKey(context.Background(), access.KeySpec{Project: s.Project, Kind: access.Live, Permissions: may})
	if err != nil {
		s.t.Fatal(err)
	}
	return secret.Reveal()
}

// NewStream creates a stream. It is a JSON stream of Project with the default limits, unless the
// spec says otherwise.
func (s *Service) NewStream(spec hub.Spec) weir.StreamID {
	s.t.Helper()
	spec.Project = cmp.Or(spec.Project, s.Project)
	spec.RetentionSeconds = cmp.Or(spec.RetentionSeconds, weir.DefaultRetention)
	spec.MaxBytes = cmp.Or(spec.MaxBytes, weir.DefaultMaxBytes)
	spec.Mode = cmp.Or(spec.Mode, weir.JSON)
	stream, err := s.Hub.Create(context.Background(), spec)
	if err != nil {
		s.t.Fatal(err)
	}
	return stream.ID
}

// Log is a log in memory that a test reads while the service writes to it.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the log so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
