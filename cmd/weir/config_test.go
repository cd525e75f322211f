package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// deploy/weir.toml shows every key once, commented out, with its default, and no other key.
func TestExampleConfig(t *testing.T) {
	text, err := os.ReadFile("../../deploy/weir.toml")
	if err != nil {
		t.Fatal(err)
	}
	if got := regexp.MustCompile(`(?m)^[^#\n].*`).FindString(string(text)); got != "" {
		t.Errorf("deploy/weir.toml sets something: %s", got)
	}
	file := filepath.Join(t.TempDir(), "weir.toml")
	set := regexp.MustCompile(`(?m)^# ([a-z0-9-]+ = )`).ReplaceAll(text, []byte("$1"))
	if err := os.WriteFile(file, set, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, defaults := flagsOf(t, "--config", file), flagsOf(t)
	defaults.given.VisitAll(func(f *pflag.Flag) {
		if !isKey(f) {
			return
		}
		if loaded.from.of(f.Name).kind != byFile {
			t.Errorf("deploy/weir.toml lacks the line: # %s = %s", f.Name, inTOML(valueOf(f)))
		}
		if got := loaded.given.Lookup(f.Name); inTOML(valueOf(got)) != inTOML(valueOf(f)) {
			t.Errorf("deploy/weir.toml has %s = %s, the default is %s", f.Name, inTOML(valueOf(got)), inTOML(valueOf(f)))
		}
	})
}

// flagsOf is what serve would run with.
func flagsOf(t *testing.T, args ...string) *settings {
	t.Helper()
	var s settings
	c := &cobra.Command{}
	s.flags(c.Flags())
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if err := s.load(c, os.Stderr); err != nil {
		t.Fatal(err)
	}
	return &s
}

// Every setting that SIGHUP changes is one.
func TestReloadable(t *testing.T) {
	s := flagsOf(t)
	for _, name := range reloadable {
		if s.given.Lookup(name) == nil {
			t.Errorf("there is no flag --%s", name)
		}
	}
	if !slices.IsSorted(reloadable) {
		t.Error("reloadable is not in order")
	}
}

// What is printed is a file that says the same, whatever is in it.
func TestPrintedConfig(t *testing.T) {
	odd := "a \"b\" \\ c\td é \x7f $"
	s := flagsOf(t, "--data", odd, "--cors-origins", "https://a.example,https://b.example", "--gap-grace", "90s", "--demo=false")
	file := filepath.Join(t.TempDir(), "weir.toml")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.printTOML(out); err != nil {
		t.Fatal(err)
	}
	out.Close()
	again := flagsOf(t, "--config", file)
	s.each(func(f *pflag.Flag, _ source, v any) {
		if got := again.given.Lookup(f.Name).Value.String(); got != f.Value.String() {
			t.Errorf("%s was %q, and is %q when it is read again", f.Name, f.Value.String(), got)
		}
	})
	if again.data != odd {
		t.Errorf("got %q, want %q", again.data, odd)
	}
}
