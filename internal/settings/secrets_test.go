package settings

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// SecretsExposed checks every setting that names a file with a secret.
func TestSecretsExposed(t *testing.T) {
	dir := t.TempDir()
	for mode, exposed := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: false, 0o440: false, 0o644: true, 0o604: true, 0o660: true, 0o602: true} {
		path := filepath.Join(dir, "secret")
		if err := os.WriteFile(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"--admin-password-file", path},
			{"--tls-key", path, "--tls-cert", "cert.pem"},
			{"--cluster-secret", path, "--engine", "nats", "--cluster-listen", "127.0.0.1:0"},
			{"--nats-creds", path, "--engine", "nats", "--nats-url", "nats://127.0.0.1"},
			{"--nats-system-creds", path, "--engine", "nats", "--nats-url", "nats://127.0.0.1"},
		} {
			s, err := Parse(args...)
			if err != nil {
				t.Fatal(err)
			}
			got := s.SecretsExposed()
			if len(got) > 0 != exposed || exposed && (!strings.Contains(got[0], args[0]) || !strings.Contains(got[0], path)) {
				t.Errorf("%v with mode %o: %q", args, mode, got)
			}
		}
		os.Remove(path)
	}
	file := filepath.Join(dir, "weir.toml")
	for text, want := range map[string]int{"demo = false\n": 0, "bootstrap-keys = [\"shop:svc_live_00112233445566778899aabbccddeeff\"]\n": 1} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		var s Settings
		f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		s.Flags(f)
		if err := f.Parse([]string{"--config", file}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(f, io.Discard); err != nil {
			t.Fatal(err)
		}
		if got := s.SecretsExposed(); len(got) != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	s, err := Parse("--admin-password-file", filepath.Join(dir, "missing"))
	if got := s.SecretsExposed(); err != nil || len(got) > 0 {
		t.Errorf("missing file: %q, %v", got, err)
	}
}
