package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAuthority(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	names := []string{"Machine", "streams.example.com", "192.168.7.8", "203.0.113.7", "", "localhost", "2001:db8::7"}
	a, err := OpenAuthority(dir, names, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "machine", "streams.example.com", "192.168.7.8", "203.0.113.7", "2001:db8::7"} {
		if err := handshake(a, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"example.com", "other", "10.0.0.1"} {
		if handshake(a, name) == nil {
			t.Errorf("the certificate is valid for %s, want it to be invalid", name)
		}
	}
	for name, want := range map[string]os.FileMode{authorityFile: 0o644, authorityKey: 0o600, ".": 0o700} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v", name, st.Mode(), err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.*.*")); len(left) > 0 {
		t.Errorf("temporary files remain: %v", left)
	}

	// After a restart the CA is the same and the certificate is a new one.
	again, err := OpenAuthority(dir, names, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if !again.cert.Equal(a.cert) || again.leaf.Leaf.SerialNumber.Cmp(a.leaf.Leaf.SerialNumber) == 0 {
		t.Error("after a restart the CA must be the same and the certificate must be new")
	}
}

// Invalid names are left out with a warning; the certificate has all others.
func TestAuthorityInvalidNames(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	names := []string{"streams..example.com", ".example.com", "b\u00fccher.example", "a b", strings.Repeat("a", 64), strings.Repeat("a.", 130) + "a", "my_machine"}
	for range 2 { // the second round uses the files that the first one created
		a, err := OpenAuthority(dir, names, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"localhost", "my_machine"} {
			if err := handshake(a, name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if u := a.cert.ExtKeyUsage; len(u) != 1 || u[0] != x509.ExtKeyUsageServerAuth {
			t.Errorf("the CA certificate has the extended key usage %v, want only ServerAuth", u)
		}
	}
	if n := strings.Count(log.String(), "neither a host name nor an address"); n != 2*(len(names)-1) {
		t.Errorf("the log has %d warnings, want one for each invalid name and start: %s", n, &log)
	}
}

// Even if the CA's key was stolen, clients that trust the CA reject certificates that it signs for
// other names or for public addresses.
func TestAuthorityIsConstrained(t *testing.T) {
	a, err := OpenAuthority(t.TempDir(), []string{"machine"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bank.example.com", "93.184.216.34", "2606:2800::1"} {
		a.names = []string{name}
		if a.leaf, err = a.sign(a.now()); err != nil {
			t.Fatal(err)
		}
		if err := handshake(a, name); err == nil || !strings.Contains(err.Error(), "not permitted") {
			t.Errorf("%s: %v, want an error with \"not permitted\"", name, err)
		}
	}
}

// If the server gets a new name that the CA was not created for, the name is left out with a
// warning. The other names work.
func TestAuthorityNewNames(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenAuthority(dir, []string{"example.com"}, quiet); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	a, err := OpenAuthority(dir, []string{"example.com", "sub.example.com", "example.org", "10.1.2.3"}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "example.com", "sub.example.com", "10.1.2.3"} {
		if err := handshake(a, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "name=example.org") {
		t.Errorf("want one warning, about example.org; the log is %s", &log)
	}
}

// A new certificate is issued before the current one expires, until the CA itself expires.
func TestAuthorityRenews(t *testing.T) {
	dir := t.TempDir()
	c := &clock{time.Now()}
	a, err := openAuthority(dir, nil, quiet, c.now)
	if err != nil {
		t.Fatal(err)
	}
	first := a.leaf
	c.Time = c.Add(renewAfter - time.Second)
	if got, _ := a.Get(nil); got != first {
		t.Error("a new certificate was issued too early")
	}
	for made := 0; made < 30; made++ {
		c.Time = c.Add(renewAfter)
		if err := handshake(a, "localhost"); err != nil {
			t.Fatalf("the handshake failed after %v: %v", c.Sub(first.Leaf.NotBefore), err)
		}
	}
	if a.leaf == first {
		t.Error("no new certificate was issued")
	}
	c.Time = a.cert.NotAfter
	if _, err := openAuthority(dir, nil, quiet, c.now); err == nil || !strings.Contains(err.Error(), "to create a new one") {
		t.Errorf("open an expired CA: got %v, want an error", err)
	}
}

// A CA that cannot be used is an error and is not changed: clients may trust it.
func TestAuthorityUnusable(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, _ := x509.MarshalPKCS8PrivateKey(other)
	for name, c := range map[string]struct {
		spoil func(dir string)
		want  string
	}{
		"missing key":                {func(dir string) { os.Remove(filepath.Join(dir, authorityKey)) }, "read the key of local CA"},
		"truncated key":              {func(dir string) { os.Truncate(filepath.Join(dir, authorityKey), 20) }, "failed to find any PEM data"},
		"truncated certificate":      {func(dir string) { os.Truncate(filepath.Join(dir, authorityFile), 20) }, "failed to find any PEM data"},
		"key in the wrong format":    {func(dir string) { os.WriteFile(filepath.Join(dir, authorityKey), der, 0o600) }, "PEM"},
		"certificate is not of a CA": {func(dir string) { pair(t, dir, authorityFile, authorityKey) }, "not a CA certificate created by Weir"},
		"certificate is a directory": {func(dir string) {
			os.Remove(filepath.Join(dir, authorityFile))
			os.Mkdir(filepath.Join(dir, authorityFile), 0o700)
		}, "is a directory"},
		"directory is a file": {func(dir string) { os.RemoveAll(dir); os.WriteFile(dir, nil, 0o600) }, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tls")
			if _, err := OpenAuthority(dir, nil, quiet); err != nil {
				t.Fatal(err)
			}
			c.spoil(dir)
			before, _ := os.ReadFile(filepath.Join(dir, authorityFile))
			if _, err := OpenAuthority(dir, nil, quiet); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if after, _ := os.ReadFile(filepath.Join(dir, authorityFile)); !bytes.Equal(before, after) {
				t.Error("the CA certificate was changed")
			}
		})
	}
}

// A crash between writing the key and the certificate leaves a key without a certificate. The next
// start creates a new CA.
func TestAuthorityAfterACrash(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenAuthority(dir, nil, quiet); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, authorityFile))
	a, err := OpenAuthority(dir, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := handshake(a, "localhost"); err != nil {
		t.Error(err)
	}
}

func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tls", "secret")
	first, err := Secret(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Secret(path)
	if err != nil || *again != *first || *first == ([32]byte{}) {
		t.Errorf("got %x, %v, then %x; want the same random bytes twice", first, err, again)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, want 0600", st.Mode())
	}
	os.Truncate(path, 5)
	if _, err := Secret(path); err == nil || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("a secret of 5 bytes: %v, want an error", err)
	}
}
