package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"
)

// The suite on the distributed engine, with one NATS server inside the process, and with one that runs elsewhere.
// TestContractCluster does the same with three.
func TestContractNATS(t *testing.T) {
	for name, flags := range map[string]func(t *testing.T) []string{
		"inside":    func(*testing.T) []string { return []string{"--cluster-listen", "127.0.0.1:0"} },
		"elsewhere": natsElsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			if !*slow {
				t.Skip("takes a while: -contract.slow")
			}
			t.Parallel()
			all := append([]string{"--gap-grace", "2s", "--rate-anonymous", "0", "--engine", "nats"}, flags(t)...)
			target := serve(t, t.TempDir(), all...).over(t, Transports[0])
			target.Slow, target.Light = *slow, true
			Run(t, target)
		})
	}
}

// natsElsewhere runs a NATS server with an account for us and one for the system, and returns the flags that use it.
func natsElsewhere(t *testing.T) []string {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	o, err := nats.ProcessConfigFile(file("nats.conf", fmt.Sprintf(`listen: "127.0.0.1:-1"
jetstream { store_dir: %q, sync_interval: always }
accounts {
  OURS { jetstream: enabled, users: [ { user: weir, password: one } ] }
  SYS { users: [ { user: system, password: two } ] }
}
system_account: SYS
`, filepath.Join(dir, "nats"))))
	if err != nil {
		t.Fatal(err)
	}
	o.NoSigs, o.NoLog = true, true
	s, err := nats.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	return []string{"--nats-url", s.ClientURL(), "--nats-replicas", "1",
		"--nats-creds", file("weir.creds", "weir:one"), "--nats-system-creds", file("system.creds", "system:two")}
}
