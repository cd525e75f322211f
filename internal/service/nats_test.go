package service

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/natstest"
)

// A NATS server that falls silent, while its connection stays open, is left within half a minute. The
// test has no such patience, so it shortens the time between two pings.
func TestSilentNATSServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "INFO {\"server_id\":\"silent\",\"max_payload\":1048576}\r\n")
		for lines := bufio.NewScanner(c); lines.Scan(); {
			if lines.Text() == "PING" {
				io.WriteString(c, "PONG\r\n")
				break
			}
		}
		io.Copy(io.Discard, c) // until the client closes the connection
	}()
	s := &store{logger: slog.New(slog.DiscardHandler)}
	options := s.natsOptions()
	left := make(chan error, 1)
	nc, err := nats.Connect(l.Addr().String(), append(options, nats.PingInterval(time.Millisecond), nats.NoReconnect(),
		nats.ClosedHandler(func(nc *nats.Conn) { left <- nc.LastError() }))...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := <-left; !errors.Is(err, nats.ErrStaleConnection) {
		t.Errorf("the connection ended with %v, want ErrStaleConnection", err)
	}
	var o nats.Options
	for _, set := range options {
		if err := set(&o); err != nil {
			t.Fatal(err)
		}
	}
	if silence := o.PingInterval * time.Duration(o.MaxPingsOut+1); silence <= 0 || silence > 30*time.Second {
		t.Errorf("a silent server is left after %v, want at most 30 s", silence)
	}
}

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
