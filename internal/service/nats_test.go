package service

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/natstest"
)

// The service refuses NATS servers that acknowledge before they sync. It also refuses servers if it
// cannot find out when they sync. The operator can allow such servers; the log then warns about it.
func TestNATSURL(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong")
	if err := os.WriteFile(wrong, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	ours := func(s natstest.Server) []string { return []string{"--nats-creds", s.Creds} }
	both := func(s natstest.Server) []string { return append(ours(s), "--nats-system-creds", s.SystemCreds) }
	for name, c := range map[string]struct {
		synced bool
		flags  func(natstest.Server) []string
		fault  string // text in the error; empty if the service starts
		says   string // text in the log
	}{
		"synced":     {true, both, "", ""},
		"unsynced":   {false, both, "runs without sync_interval: always", ""},
		"unknown":    {true, ours, "only the system account can ask", ""},
		"allowed":    {false, func(s natstest.Server) []string { return append(both(s), "--nats-allow-unsynced") }, "", "--nats-allow-unsynced"},
		"wrong file": {true, func(natstest.Server) []string { return []string{"--nats-creds", wrong} }, "neither a NATS .creds file", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t, c.synced)
			args := append([]string{"--data", t.TempDir(), "--http", "127.0.0.1:0", "--https", "off", "--metrics", "off", "--demo=false",
				"--engine", "nats", "--nats-url", s.URL, "--nats-replicas", "1"}, c.flags(s)...)
			var log bytes.Buffer
			svc, err := Start(context.Background(), Options{Settings: loadSettings(t, args...), Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err == nil {
				if svc.store.unsynced.Load() != (c.says != "") {
					t.Errorf("unsynced: %v, want %v", svc.store.unsynced.Load(), c.says != "")
				}
				if status, ok := svc.health(); !ok {
					t.Errorf("the service is not healthy: %s", status)
				}
				if err := svc.Stop(time.Second); err != nil {
					t.Error(err)
				}
			}
			if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Errorf("start: %v, want %q", err, c.fault)
			}
			if !strings.Contains(log.String(), c.says) || strings.Contains(log.String(), "two") {
				t.Errorf("the log says %s, want %q", log.String(), c.says)
			}
		})
	}
}
