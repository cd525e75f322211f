package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// A NATS server inside the process that hangs, for example in a deadlock, ends the process. The
// server's own report about its state hangs as well.
func TestNATSServerHangs(t *testing.T) {
	hanging := make(chan struct{})
	defer close(hanging)
	hang := func() error { <-hanging; return nil }
	tick := make(chan time.Time, mostSilent)
	for range mostSilent {
		tick <- time.Time{}
	}
	if err := examine(hang, tick, nil); err != errHangs {
		t.Errorf("a server that hangs: %v", err)
	}
	fault := errors.New("a fault")
	if err := examine(func() error { return fault }, nil, nil); err != fault {
		t.Errorf("a server with a fault: %v", err)
	}
	stopping := make(chan struct{})
	close(stopping)
	if err := examine(hang, nil, stopping); err != nil {
		t.Errorf("a service that stops: %v", err)
	}

	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	s := &store{server: server}
	s.fault.Store(&errHangs)
	if s.close(); server.Fault() != nil {
		t.Error("the store waits until a server that hangs has stopped")
	}
}

// A server whose disk is full starts when the disk works again, however long that takes. Other errors
// end the attempts, and so does the end of the context.
func TestStartWhenWritable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := fmt.Errorf("%w: no space left", embedded.ErrStart)
		begun := time.Now()
		works := func() bool { return time.Since(begun) > time.Hour }
		starts, said := 0, 0
		waits := func(why error) {
			if said++; why != full {
				t.Errorf("the reason to wait is %v", why)
			}
		}
		err := startWhenWritable(t.Context(), func() error {
			if starts++; works() {
				return nil
			}
			return full
		}, works, waits)
		if err != nil || starts != 2 || said != 1 || !works() {
			t.Errorf("a disk that is full for an hour: %v after %v and %d starts, with %d calls of waits", err, time.Since(begun), starts, said)
		}

		starts = 0
		err = startWhenWritable(t.Context(), func() error {
			if starts++; starts == 1 {
				return full // the disk has got space since then
			}
			return nil
		}, works, nil)
		if err != nil || starts != 2 {
			t.Errorf("a disk that works again at once: %v after %d starts", err, starts)
		}

		other := errors.New("other")
		for want, most := range map[error]int{other: 1, full: 2} {
			starts = 0
			if err := startWhenWritable(t.Context(), func() error { starts++; return want }, works, nil); err != want || starts != most {
				t.Errorf("%v on a disk that works: %v after %d starts, want %d", want, err, starts, most)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := startWhenWritable(ctx, func() error { return full }, func() bool { return false }, waits); err != full {
			t.Errorf("at the end of the context: %v", err)
		}
	})
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
	if err := s.startServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.server.Stop()
	if _, limit := s.server.Room(); limit != size/4*3 {
		t.Errorf("the server may store %d bytes on a disk of %d", limit, size)
	}
}
