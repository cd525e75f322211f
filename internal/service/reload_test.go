package service

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weir/internal/settings"
)

// SIGHUP re-reads certificates and other files even if the configuration cannot be read. The log
// reports a failure, and the metrics show it until a later reload succeeds.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.toml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rate-live = 5\n")
	s := loadSettings(t, "--data", t.TempDir(), "--http", "127.0.0.1:0", "--metrics", "off", "--demo=false", "--config", file)
	var log bytes.Buffer
	read := make(chan string)
	svc, err := Start(context.Background(), Options{Settings: s, Logger: slog.New(teller{slog.NewTextHandler(&log, nil), read})})
	if err != nil {
		t.Fatal(err)
	}
	reads, broken := 0, errors.New("no certificate")
	svc.reloads = []reload{{"certificates", func() error { reads++; return broken }}}
	hangups := make(chan os.Signal)
	svc.FollowHangups(hangups)
	hangup := func() {
		hangups <- syscall.SIGHUP
		<-read
	}
	hangup()
	write("rate-live = many\n")
	hangup()
	if reads != 2 || !svc.observer.failed.Load() {
		t.Errorf("certificates were read %d times, failed: %v", reads, svc.observer.failed.Load())
	}
	broken = nil
	hangup()
	write("rate-live = 6\n")
	hangup()
	hangup()
	if svc.observer.failed.Load() {
		t.Error("a reload that succeeded is shown as failed")
	}
	svc.Stop(0)
	text := log.String()
	if strings.Count(text, "what=certificates") != 2 || strings.Count(text, "keeping the old one") != 2 || !strings.Contains(text, "changed=rate-live") {
		t.Errorf("the log:\n%s", text)
	}
}

// teller is a log handler that tells the test when the configuration has been re-read.
type teller struct {
	slog.Handler
	read chan<- string
}

func (h teller) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if strings.Contains(r.Message, "the configuration") {
		h.read <- r.Message
	}
	return err
}

// loadSettings returns the settings that weir serve would run with, including those of the
// configuration file.
func loadSettings(t *testing.T, args ...string) *settings.Settings {
	t.Helper()
	s, err := settings.Parse(args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
