// Package natstest runs NATS servers for tests in the way operators run them: the server is
// separate from Weir, and Weir gets only an account on it.
package natstest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Server describes a running server: its URL, and the files with the credentials of Weir's account
// and of the system account.
type Server struct {
	URL, Creds, SystemCreds string
}

// Start runs a server until the test ends. If synced is false, the server acknowledges writes
// before they are on disk, so a power cut can undo them.
func Start(t testing.TB, synced bool) Server {
	t.Helper()
	dir, interval := t.TempDir(), "2m"
	if synced {
		interval = "always"
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	o, err := server.ProcessConfigFile(file("nats.conf", fmt.Sprintf(`listen: "127.0.0.1:-1"
jetstream { store_dir: %q, sync_interval: %s }
accounts {
  OURS { jetstream: enabled, users: [ { user: weir, password: one } ] }
  SYS { users: [ { user: system, password: two } ] }
}
system_account: SYS
`, filepath.Join(dir, "store"), interval)))
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
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server did not start")
	}
	return Server{s.ClientURL(), file("weir.creds", "weir:one\n"), file("system.creds", "system:two\n")}
}
