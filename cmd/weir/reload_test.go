package main

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
)

// What is re-read beside the settings is re-read whether or not the settings can be, and whatever fails shows in the log and in
// the metrics until it does not.
func TestReloads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.toml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rate-live = 5\n")
	s := flagsOf(t, "--data", t.TempDir(), "--http", "127.0.0.1:0", "--metrics", "off", "--demo=false", "--config", file)
	var log bytes.Buffer
	read := make(chan string)
	svc, err := start(context.Background(), *s, slog.New(teller{slog.NewTextHandler(&log, nil), read}))
	if err != nil {
		t.Fatal(err)
	}
	reads, broken := 0, errors.New("no certificate there")
	svc.reloads = []reload{{"certificates", func() error { reads++; return broken }}}
	hangups := make(chan os.Signal)
	svc.work.Go(func() { svc.followHangups(hangups) })
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
	svc.stop(0)
	text := log.String()
	if strings.Count(text, "what=certificates") != 2 || strings.Count(text, "the old one stays") != 2 || !strings.Contains(text, "changed=rate-live") {
		t.Errorf("the log:\n%s", text)
	}
}

// teller tells when the configuration was read.
type teller struct {
	slog.Handler
	read chan<- string
}

func (h teller) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if strings.HasPrefix(r.Message, "the configuration was ") {
		h.read <- r.Message
	}
	return err
}

// Whatever is in a file, it is read or refused by its name.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		"", "gap-grace = \"2s\"", "rate-live = 5\nrate-live = 6", "[a]\nb = 1\n[[c]]\n", "a.b.c = 1", "cors-origins = [\"a\", [1]]", "\"\" = 1",
		"data = '''\na\n'''\nhttp = 0x1F", "demo = 1979-05-27", "heartbeat = nan", "\xff", "a = {b = {c = 1}}\n# é", "gap-grace = \"1h\" # x",
	} {
		f.Add(text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, "weir.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := flagsOf(t)
		s.from[configFlag] = source{byFlag, "--config"}
		err := readFile(file, s.given, s.from)
		if err != nil && !strings.HasPrefix(err.Error(), file+":") {
			t.Errorf("%q: %v", text, err)
		}
	})
}
