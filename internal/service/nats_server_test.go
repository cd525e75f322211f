package service

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/disk"
	"weir/internal/engine/jetstream/embedded"
)

// If the NATS server inside the process has stopped and cannot be restarted, the service ends, so
// that a supervisor notices.
func TestRestartFails(t *testing.T) {
	t.Parallel() // the test mostly waits: NATS reports its failure by not becoming ready
	data := t.TempDir()
	dir := filepath.Join(data, natsDir)
	server, err := embedded.Start(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	// NATS keeps its data in the directory jetstream. It cannot start if this name is a file.
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &store{settings: loadSettings(t, "--data", data), logger: slog.New(slog.DiscardHandler), server: server}
	if err := s.tendServer(nil); err == nil || !strings.HasPrefix(err.Error(), "restart the NATS server: ") {
		t.Errorf("the restart returned %v", err)
	}
	if s.stopped() == nil {
		t.Error("the engine does not learn that the server has stopped")
	}
}

// The space that a NATS server may use depends on the size of the disk, and not on what is free when
// the server starts: a server that starts on a full disk must accept data when the disk has space again.
func TestSpaceOfTheNATSServer(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	_, size, err := disk.Space(data)
	if err != nil {
		t.Skip(err)
	}
	s := &store{settings: loadSettings(t, "--data", data, "--engine", "nats", "--cluster-listen", "127.0.0.1:0"), logger: slog.New(slog.DiscardHandler)}
	c, err := s.startNATS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	defer s.server.Stop()
	if _, limit := s.server.Room(); limit != size/4*3 {
		t.Errorf("the server may store %d bytes on a disk of %d", limit, size)
	}
}
