package service_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/internal/service"
	"weir/internal/service/servicetest"
)

var secrets = regexp.MustCompile(`svc_live_[0-9a-f]{32}|(?m)^  [0-9A-Za-z]{20}$`)

// On a terminal, the first start shows the key and the password once.
func TestWelcome(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	var out bytes.Buffer
	s.Welcome(&out)
	if got := secrets.FindAllString(out.String(), -1); len(got) != 4 { // the key three times and the password once
		t.Errorf("%d secrets, want 4: %s", len(got), &out)
	}
	for _, again := range []func(){func() { s.Welcome(&out) }, func() { s.WelcomeFile(&out) }} {
		out.Reset()
		again()
		if out.Len() > 0 {
			t.Errorf("the secrets were shown again: %s", &out)
		}
	}
	if _, err := os.Stat(filepath.Join(s.Data, service.FirstStart)); err == nil {
		t.Error("the service wrote the file, although the output was a terminal")
	}
}

// If the output is not a terminal, the first start appends the key and the password to a file that
// only this user can read. The text of an earlier start stays in the file.
func TestWelcomeFile(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	path := filepath.Join(s.Data, service.FirstStart)
	if err := os.WriteFile(path, []byte("an earlier start\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.WelcomeFile(&out); err != nil {
		t.Fatal(err)
	}
	if secrets.MatchString(out.String()) || !strings.Contains(out.String(), path) || !strings.Contains(out.String(), s.URL()) {
		t.Errorf("the output contains a secret, or lacks the path or the URL: %s", &out)
	}
	text, err := os.ReadFile(path)
	if got := secrets.FindAllString(string(text), -1); len(got) != 4 || !strings.HasPrefix(string(text), "an earlier start\n") {
		t.Errorf("the file has %d secrets, want 4, after the text of the earlier start: %s, %v", len(got), text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the mode of the file is %v, want 0600; error %v", info.Mode(), err)
	}
}

// If the file is a symbolic link, the service does not write to it, because the link could lead to
// a file that other users can read.
func TestWelcomeFileIsLink(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, filepath.Join(s.Data, service.FirstStart)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.WelcomeFile(&out); err == nil || out.Len() > 0 {
		t.Errorf("error %v, output %q; want an error and no output", err, &out)
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("the service wrote to the target of the link")
	}
}
