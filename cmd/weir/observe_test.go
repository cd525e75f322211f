package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func askMetrics(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: metrics PATH")
	}
	status, body, err := get(ts.Getenv("METRICS") + args[0])
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d\n%s", status, body)
}

func get(url string) (int, string, error) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// An address for metrics that the operator did not choose is given up when it is taken; one that was chosen is an error that
// names where.
func TestMetricsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		from sources
		want string // of the error; none: it is a warning
	}{
		{sources{}, ""},
		{sources{"metrics": {byFlag, "--metrics"}}, "(--metrics): "},
		{sources{"metrics": {byEnvironment, "WEIR_METRICS"}}, "(WEIR_METRICS): "},
		{sources{"metrics": {byFile, "weir.toml:3"}}, "(weir.toml:3: metrics): "},
	} {
		var log bytes.Buffer
		svc := &service{
			settings: settings{metrics: taken.Addr().String(), from: c.from}, logger: slog.New(slog.NewTextHandler(&log, nil)),
			stopping: make(chan struct{}),
		}
		err := svc.observe()
		switch warned := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "--metrics"); {
		case c.want == "" && (err != nil || !warned):
			t.Errorf("an address by default: %v, %s", err, log.String())
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || warned):
			t.Errorf("want an error with %s, got %v", c.want, err)
		}
		if got := svc.observer.address(); got != "" {
			t.Errorf("metrics are at %s", got)
		}
		svc.stop(0)
	}
}

// Readiness is told from before the data directory is opened until after it is closed.
func TestReadiness(t *testing.T) {
	s := flagsOf(t, "--data", t.TempDir(), "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--demo=false")
	logger := slog.New(slog.DiscardHandler)
	svc := &service{settings: *s, logger: logger, stopping: make(chan struct{})}
	wants := func(svc *service, status int, text string) {
		t.Helper()
		got, body, err := get(svc.observer.address() + "/readyz")
		if err != nil || got != status || body != text+"\n" {
			t.Errorf("/readyz: %d %s %v, want %d %s", got, body, err, status, text)
		}
		if got, _, err := get(svc.observer.address() + "/healthz"); err != nil || got != 200 {
			t.Errorf("/healthz: %d %v", got, err)
		}
	}
	if err := svc.observe(); err != nil {
		t.Fatal(err)
	}
	wants(svc, 503, "starting")
	svc.stop(0)

	svc, err := start(context.Background(), *s, logger)
	if err != nil {
		t.Fatal(err)
	}
	wants(svc, 200, "ok")
	svc.engine.Close() // as if it were over with writing
	wants(svc, 503, "read_only: the store is closed")
	svc.stop(0)
	if got, ok := svc.ready(); got != "stopping" || ok {
		t.Errorf("after it stopped it is %s", got)
	}
	if _, _, err := get(svc.observer.address() + "/readyz"); err == nil {
		t.Error("metrics are still there")
	}
}
