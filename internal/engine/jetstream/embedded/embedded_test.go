package embedded

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"weir/internal/natstest"
)

// A server that cannot start returns an error that says why, at once.
func TestStartFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil { // NATS wants a directory
		t.Fatal(err)
	}
	if _, err := Start(Options{Dir: dir}); !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "directory") {
		t.Errorf("got %v, want an error that names the directory", err)
	}
}

// member starts a server of a cluster with the given peers.
func member(t *testing.T, name, listen, secret string, peers []string) *Server {
	t.Helper()
	s, err := Start(Options{Dir: t.TempDir(), Name: name, Cluster: "test", Listen: listen, Peers: peers, Secret: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Nodes with the same secret connect to each other. A node that knows the addresses and names but
// not the secret is rejected.
func TestStranger(t *testing.T) {
	at := natstest.Addresses(t, 3)
	ours := strings.Repeat("a secret", 8)
	stranger := member(t, "c", at[2], strings.Repeat("another one", 8), at)
	a, b := member(t, "a", at[0], ours, at), member(t, "b", at[1], ours, at)
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for a.s.Load().NumRemotes() == 0 || b.s.Load().NumRemotes() == 0 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("nodes with the same secret did not connect within a minute")
		}
	}
	if n := stranger.s.Load().NumRemotes(); n != 0 || a.s.Load().NumRemotes() != 1 {
		t.Errorf("the stranger has %d routes (want 0), a node has %d (want 1)", n, a.s.Load().NumRemotes())
	}
}

// Invalid options are refused with an error that says what is wrong.
func TestRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := Options{Name: "a", Cluster: "test", Listen: "127.0.0.1:1", Secret: []byte(strings.Repeat("a secret", 8))}
	for want, change := range map[string]func(*Options){
		`"nowhere" is not HOST:PORT`:   func(o *Options) { o.Listen = "nowhere" },
		`"host:none" is not HOST:PORT`: func(o *Options) { o.Listen = "host:none" },
		"the cluster's name":           func(o *Options) { o.Cluster = "" },
		`peer "x" is not HOST:PORT`:    func(o *Options) { o.Peers = []string{"x"} },
		"address already in use":       func(o *Options) { o.Listen = taken.Addr().String() },
		"at least 32":                  func(o *Options) { o.Secret = []byte("short") },
	} {
		o := good
		o.Dir = t.TempDir()
		change(&o)
		if s, err := Start(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
			if err == nil {
				s.Stop()
			}
		}
	}
}

// Failures to reach other nodes are not logged as warnings while all nodes start.
func TestGathering(t *testing.T) {
	for _, c := range []struct {
		since time.Duration
		want  string
	}{
		{0, "level=WARN msg=\"disk failure\"\n"},
		{gathering, "level=WARN msg=\"disk failure\"\nlevel=WARN msg=\"Error trying to connect to route (attempt 60): refused\"\n"},
	} {
		var out strings.Builder
		plain := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}
		l := &logger{l: slog.New(slog.NewTextHandler(&out, plain)), begun: time.Now().Add(-c.since)}
		l.Errorf("disk %s", "failure")
		l.Errorf("Error trying to connect to route (attempt %d): %s", 60, "refused")
		l.Warnf("Plaintext passwords detected, use nkeys or bcrypt")
		if out.String() != c.want {
			t.Errorf("%v after the start: %s, want %s", c.since, out.String(), c.want)
		}
	}
}

// If a server does not stop, or does not hand over its streams, Stop and Restart do not wait for ever,
// and Restart does not start another one on the same directory.
func TestServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		handedOver := make(chan bool, 2)
		e := &Server{password: "of a node in a cluster", stop: func(_ *server.Server, handOver bool) {
			handedOver <- handOver
			<-never
		}}
		if e.Stop(); !<-handedOver {
			t.Error("the server was stopped before it handed over its streams")
		}
		if err := e.Restart(); err == nil || !strings.Contains(err.Error(), "did not stop within") {
			t.Errorf("Restart returned %v", err)
		}
		if <-handedOver {
			t.Error("a server that restarts handed over its streams")
		}
	})
}
