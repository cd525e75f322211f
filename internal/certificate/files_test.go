package certificate

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

// clock is a clock that tests set.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

// pair writes a new certificate and its key to two files. It skips a file whose name is empty.
func pair(t *testing.T, dir string, cert, key string) *x509.Certificate {
	t.Helper()
	a, err := OpenAuthority(t.TempDir(), nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Get(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if name == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c.Leaf
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	first := pair(t, dir, "cert.pem", "key.pem")
	var log bytes.Buffer
	f, err := OpenFiles(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{f.looked}
	f.now = c.now
	serves := func(want *x509.Certificate) {
		t.Helper()
		got, err := f.Get(nil)
		if err != nil || !got.Leaf.Equal(want) {
			t.Errorf("Get returned a different certificate (%v)", err)
		}
	}
	logged := func(what string, times int) {
		t.Helper()
		if got := strings.Count(log.String(), what); got != times {
			t.Errorf("%q is logged %d times, want %d: %s", what, got, times, &log)
		}
	}
	serves(first)

	// Only one file of a pair has changed: the current certificate stays, and one warning is
	// logged.
	pair(t, dir, "cert.pem", "")
	serves(first)
	for range 3 {
		c.Time = c.Add(lookEvery)
		serves(first)
	}
	logged("level=WARN", 1)
	if err := f.Reload(); err == nil || !strings.Contains(err.Error(), "private key does not match") {
		t.Errorf("Reload returned %v, want an error about the private key", err)
	}

	// The complete pair is served after the next check of the files, and not sooner.
	second := pair(t, dir, "cert.pem", "key.pem")
	serves(first)
	c.Time = c.Add(lookEvery)
	serves(second)
	logged("certificate changed", 1)

	// Reload does not wait for the next check.
	third := pair(t, dir, "cert.pem", "key.pem")
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	serves(third)

	// A file is missing for a moment.
	os.Remove(filepath.Join(dir, "key.pem"))
	c.Time = c.Add(lookEvery)
	serves(third)
	logged("level=WARN", 2)
	logged("certificate changed", 2)
}

func TestFilesUnusable(t *testing.T) {
	dir := t.TempDir()
	pair(t, dir, "cert.pem", "key.pem")
	pair(t, dir, "other.pem", "other-key.pem")
	os.WriteFile(filepath.Join(dir, "text.pem"), []byte("text"), 0o600)
	for _, c := range []struct{ cert, key, want string }{
		{"missing.pem", "key.pem", "missing.pem: no such file"},
		{"cert.pem", "missing.pem", "missing.pem: no such file"},
		{"cert.pem", "other-key.pem", "does not match"},
		{"text.pem", "key.pem", "failed to find any PEM data"},
		{"key.pem", "cert.pem", "key.pem with key"},
	} {
		f, err := OpenFiles(filepath.Join(dir, c.cert), filepath.Join(dir, c.key), quiet)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s and %s: got %v, %v; want an error", c.cert, c.key, f, err)
		}
	}
}

// An expired certificate is served with a warning, because the operator configured it.
func TestFilesExpired(t *testing.T) {
	dir := t.TempDir()
	long := &clock{time.Now().Add(-2 * leafLife)}
	a, err := openAuthority(t.TempDir(), nil, quiet, long.now)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := a.Get(nil)
	der, _ := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), 0o600)
	os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
	var log bytes.Buffer
	if _, err := OpenFiles(cert, key, slog.New(slog.NewTextHandler(&log, nil))); err != nil || !strings.Contains(log.String(), "certificate expired") {
		t.Errorf("opening an expired certificate returned %v, want success and a warning; the log is %s", err, &log)
	}
}

// handshake verifies the current certificate for a name, as a client that trusts the CA does.
func handshake(a *Authority, name string) error {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	leaf, err := a.Get(nil)
	if err != nil {
		return err
	}
	_, err = leaf.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool, CurrentTime: a.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}
