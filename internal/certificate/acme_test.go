package certificate

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// certmagic runs a goroutine for the rate limiter of each account until the process ends. For
	// each lock it runs a goroutine that takes up to five seconds to notice that the lock was
	// removed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.(*RingBufferRateLimiter).loop"),
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"))
}

// announcing is a log that signals each write on a channel.
type announcing struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{}
}

func (a *announcing) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case a.wrote <- struct{}{}:
	default:
	}
	return a.text.Write(b)
}

func (a *announcing) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()
}

// If the CA does not respond, Start succeeds and the error is logged. Close ends the retries.
// (TestACME in internal/trials covers a CA that responds.)
func TestACMEUnreachableCA(t *testing.T) {
	log, dir := &announcing{wrote: make(chan struct{}, 1)}, t.TempDir()
	a, err := NewACME(ACMEOptions{
		Dir: dir, Domains: []string{"streams.weir.test"}, Directory: "https://127.0.0.1:1/dir", Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start("", "127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(log.String(), "will retry") {
		<-log.wrote
	}
	a.Close()
	if locks, _ := filepath.Glob(filepath.Join(dir, "locks", "*")); len(locks) > 0 {
		t.Errorf("locks remain after Close: %v", locks)
	}
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "connection refused") {
		t.Errorf("the log has no error about the refused connection: %s", log)
	}
}

// The HTTP challenge is disabled if the cleartext listener is on a different host than TLS:
// certmagic uses the host of TLS for both challenges, and would open a cleartext listener there
// itself. 0.0.0.0 and :: count as the same host.
func TestACMEHTTPChallenge(t *testing.T) {
	for _, test := range []struct {
		plain, secure string
		off           bool
	}{
		{"", "0.0.0.0:8443", true}, {"127.0.0.1:8080", "203.0.113.7:8443", true}, {"127.0.0.1:8080", "[::]:8443", true},
		{"127.0.0.1:8080", "127.0.0.1:8443", false}, {"0.0.0.0:8080", "[::]:8443", false}, {"203.0.113.7:80", "203.0.113.7:443", false},
	} {
		a, err := NewACME(ACMEOptions{Dir: t.TempDir(), Domains: []string{"streams.weir.test"}, Directory: "https://127.0.0.1:1/dir", Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.reach(test.plain, test.secure); err != nil {
			t.Error(err)
		}
		if a.issuer.DisableHTTPChallenge != test.off {
			t.Errorf("cleartext %q, TLS %q: HTTP challenge disabled: %v, want %v", test.plain, test.secure, !test.off, test.off)
		}
		a.Close()
	}
}

// Without Start no file is created.
func TestACMENeverStarted(t *testing.T) {
	dir := t.TempDir()
	a, err := NewACME(ACMEOptions{Dir: filepath.Join(dir, "acme"), Domains: []string{"streams.weir.test"}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("files were created: %v", left)
	}
}

func TestACMERoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root.pem")
	for _, want := range []string{"no such file", "holds no PEM certificate"} {
		if _, err := NewACME(ACMEOptions{Domains: []string{"a.test"}, Root: path, Logger: quiet}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
