package client_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir"
	"weir/client"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/engine/memory"
	"weir/internal/hub"
)

// TestMain opens the service of the examples beside running the tests.
func TestMain(m *testing.M) {
	var examples examplesOf
	h := newHouse(&examples, nil)
	url, key = h.url, h.key
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		examples.clean()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}), goleak.IgnoreCurrent())
}

// examplesOf stands for a test where there is none.
type examplesOf struct {
	testing.TB
	cleanups []func()
}

func (e *examplesOf) Helper()           {}
func (e *examplesOf) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
func (e *examplesOf) Cleanup(f func())  { e.cleanups = append(e.cleanups, f) }

func (e *examplesOf) clean() {
	for _, f := range e.cleanups {
		f()
	}
}

// house is a service in this process, with a project and a key.
type house struct {
	t       testing.TB
	url     string
	key     string
	project weir.ProjectID
	access  *access.Access
	hub     *hub.Hub
	server  *httptest.Server
}

// newHouse opens a service. With wrap a test can stand before its handler.
func newHouse(t testing.TB, wrap func(http.Handler) http.Handler) *house {
	t.Helper()
	ctx := context.Background()
	h := &house{t: t}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	e := memory.New()
	var err error
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h.access, err = access.Open(ctx, e, access.Options{Demo: true, Limits: access.Limits{}})
	must(err)
	h.hub, err = hub.Open(ctx, e, hub.Options{Frame: api.Frame, Logger: logger, GapGrace: 10 * time.Second, StreamsPerProject: 500})
	must(err)
	var handler http.Handler = api.New(api.Options{Hub: h.hub, Access: h.access, BaseURL: "https://weir.example", Version: "v1.2.3", Commit: "abc", Logger: logger, Heartbeat: time.Minute})
	if wrap != nil {
		handler = wrap(handler)
	}
	h.server = httptest.NewUnstartedServer(handler)
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	h.server.Config.Protocols = &both
	h.server.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelInfo)
	h.server.Start()
	h.url = h.server.URL
	p, err := h.access.CreateProject(ctx, "ours")
	must(err)
	h.project = p.ID
	h.key = h.newKey()
	t.Cleanup(func() {
		h.hub.StopSubscriptions()
		h.server.CloseClientConnections()
		h.server.Close()
		h.hub.Close()
		e.Close()
	})
	return h
}

// newKey makes a key with some permissions, or all.
func (h *house) newKey(may ...access.Permission) string {
	h.t.Helper()
	_, secret, err := h.access.CreateKey(context.Background(), access.KeySpec{Project: h.project, Kind: access.Live, Permissions: may})
	if err != nil {
		h.t.Fatal(err)
	}
	return secret.Reveal()
}

func (h *house) client(o client.Options) *client.Client {
	h.t.Helper()
	if o.URL == "" {
		o.URL = h.url
	}
	if o.Key == "" {
		o.Key = h.key
	}
	return newClient(h.t, o)
}

func newClient(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// newStream creates a stream with a client.
func newStream(t testing.TB, c *client.Client, n client.NewStream) weir.StreamID {
	t.Helper()
	if n.Name == "" {
		n.Name = t.Name()
		if len(n.Name) > weir.MaxName {
			n.Name = n.Name[:weir.MaxName]
		}
	}
	s, err := c.CreateStream(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// everything reads a stream from its beginning up to its cursor and returns the events.
func everything(t testing.TB, c *client.Client, id weir.StreamID) (events []string) {
	t.Helper()
	cursor, err := c.Cursor(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if cursor.Cursor == 0 {
		return nil
	}
	for b, err := range c.Subscriber(id, client.SubscriberOptions{From: client.Oldest}).Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Gap != nil {
			t.Fatalf("a gap from %d to %d", b.Gap.From, b.Gap.To)
		}
		for _, e := range b.Events {
			events = append(events, string(e))
		}
		if b.ContentType != "" {
			events = append(events, string(b.Data))
		}
		if b.Seq >= cursor.Cursor {
			break
		}
	}
	return events
}

// numbers holds events to be the numbers from 1 to n, each once and in order.
func numbers(t testing.TB, events []string, n int) {
	t.Helper()
	if len(events) != n {
		t.Errorf("%d events, want %d", len(events), n)
	}
	for i, e := range events {
		if e != fmt.Sprint(i+1) {
			t.Fatalf("event %d is %s; around it: %s", i+1, e, strings.Join(events[max(0, i-3):min(len(events), i+4)], " "))
		}
	}
}
