package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsServer is a NATS server that runs elsewhere, with an account for us and one for the system.
func natsServer(t *testing.T, synced bool) *server.Server {
	t.Helper()
	interval := "2m"
	if synced {
		interval = "always"
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	text := fmt.Sprintf(`listen: "127.0.0.1:-1"
jetstream { store_dir: %q, sync_interval: %s }
accounts {
  OURS { jetstream: enabled, users: [ { user: weir, password: one } ] }
  SYS { users: [ { user: system, password: two } ] }
}
system_account: SYS
`, t.TempDir(), interval)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o.NoSigs, o.NoLog = true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	return s
}

// A server that would acknowledge before it syncs is refused with the reason, and so is one of which nobody can tell; the
// operator can say that it does not matter, and then it is said.
func TestNATSURL(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	weir, system := file("weir.creds", "weir:one\n"), file("system.creds", "system:two\n")
	for name, c := range map[string]struct {
		synced bool
		flags  []string
		fault  string // empty: it starts
		says   string // in the log
	}{
		"synced":          {true, []string{"--nats-creds", weir, "--nats-system-creds", system}, "", ""},
		"unsynced":        {false, []string{"--nats-creds", weir, "--nats-system-creds", system}, "runs without sync_interval: always", ""},
		"nobody can tell": {true, []string{"--nats-creds", weir}, "is told to the system account alone", ""},
		"allowed":         {false, []string{"--nats-creds", weir, "--nats-system-creds", system, "--nats-allow-unsynced"}, "", "--nats-allow-unsynced"},
		"wrong file":      {true, []string{"--nats-creds", file("wrong", "nothing")}, "neither credentials", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := natsServer(t, c.synced)
			args := append([]string{"--data", t.TempDir(), "--http", "127.0.0.1:0", "--https", "off", "--metrics", "off", "--demo=false",
				"--engine", "nats", "--nats-url", s.ClientURL(), "--nats-replicas", "1"}, c.flags...)
			var log bytes.Buffer
			svc, err := start(context.Background(), *flagsOf(t, args...), slog.New(slog.NewTextHandler(&log, nil)))
			if err == nil {
				if svc.store.unsynced.Load() != (c.says != "") {
					t.Errorf("unsynced is %v", svc.store.unsynced.Load())
				}
				if status, ok := svc.health(); !ok {
					t.Errorf("its health is %s", status)
				}
				if err := svc.stop(time.Second); err != nil {
					t.Error(err)
				}
			}
			if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Errorf("start: %v, want %q", err, c.fault)
			}
			if !strings.Contains(log.String(), c.says) || strings.Contains(log.String(), "two") {
				t.Errorf("the log says %s", log.String())
			}
		})
	}
}
