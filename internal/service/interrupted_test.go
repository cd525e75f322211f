package service

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weir/internal/natstest"
)

// onLine calls a function for each line of a log that contains a text.
type onLine struct {
	text string
	call func()
}

func (o onLine) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(o.text)) {
		o.call()
	}
	return len(line), nil
}

// A node that waits for the others of its cluster stops when a signal arrives.
func TestSignalDuringTheStart(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("secret ", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes := natstest.Addresses(t, 3)
	stop := make(chan os.Signal, 1)
	log := onLine{"waiting for the cluster", func() { stop <- syscall.SIGTERM }}
	svc, err := StartUntil(t.Context(), stop, Options{
		Settings: loadSettings(t, "--data", t.TempDir(), "--http", "127.0.0.1:0", "--https", "off", "--metrics", "off", "--engine", "nats",
			"--cluster-listen", nodes[0], "--cluster-peers", strings.Join(nodes, ","), "--cluster-secret", secret),
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if svc != nil || err != nil {
		t.Errorf("the start returned %v, %v", svc, err)
	}
}
