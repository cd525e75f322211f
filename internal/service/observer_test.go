package service

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/settings"
)

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

// If the default address of the metrics is taken, the server runs without metrics. If the operator
// chose the address, the service does not start, and the error names the flag, variable or line of
// the setting.
func TestMetricsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	file := filepath.Join(t.TempDir(), "weir.toml")
	if err := os.WriteFile(file, []byte("\n\nmetrics = \""+address+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	byDefault := loadSettings(t)
	byDefault.Metrics = address
	for _, c := range []struct {
		settings *settings.Settings
		want     string // text in the error; empty if there is only a warning
	}{
		{byDefault, ""},
		{loadSettings(t, "--metrics", address), "(--metrics): "},
		{loadSettings(t, "--config", file), "(" + file + ":3: metrics): "},
	} {
		var log bytes.Buffer
		svc := &Service{settings: c.settings, logger: slog.New(slog.NewTextHandler(&log, nil)), stopping: make(chan struct{})}
		err := svc.observe()
		switch warned := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "--metrics"); {
		case c.want == "" && (err != nil || !warned):
			t.Errorf("default address: error %v, want only a warning; the log is %s", err, log.String())
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || warned):
			t.Errorf("want an error with %s, got %v", c.want, err)
		}
		if got := svc.observer.address(); got != "" {
			t.Errorf("metrics are at %s", got)
		}
		svc.Stop(0)
	}
}

// /readyz answers from before the service opens the data directory until after the service has
// closed it.
func TestReadiness(t *testing.T) {
	s := loadSettings(t, "--data", t.TempDir(), "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--demo=false")
	logger := slog.New(slog.DiscardHandler)
	svc := &Service{settings: s, logger: logger, stopping: make(chan struct{})}
	wants := func(svc *Service, status int, text string) {
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
	svc.Stop(0)

	svc, err := Start(context.Background(), Options{Settings: s, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	wants(svc, 200, "ok")
	svc.engine.Close() // after this the store refuses writes
	wants(svc, 503, "read_only: the store is closed")
	svc.Stop(0)
	if got, ok := svc.ready(); got != "stopping" || ok {
		t.Errorf("after the service stopped: state %q, want stopping", got)
	}
	if _, _, err := get(svc.observer.address() + "/readyz"); err == nil {
		t.Error("metrics are still served")
	}
}
