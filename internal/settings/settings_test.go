package settings

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// deploy/weir.toml lists every key once, commented out and with its default. It contains no other
// key.
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
	defaults.flags.VisitAll(func(f *pflag.Flag) {
		if !isKey(f) {
			return
		}
		if loaded.from.of(f.Name).kind != byFile {
			t.Errorf("deploy/weir.toml lacks the line: # %s = %s", f.Name, inTOML(valueOf(f)))
		}
		if got := loaded.flags.Lookup(f.Name); inTOML(valueOf(got)) != inTOML(valueOf(f)) {
			t.Errorf("deploy/weir.toml has %s = %s, the default is %s", f.Name, inTOML(valueOf(got)), inTOML(valueOf(f)))
		}
	})
}

// flagsOf loads the settings that weir serve would run with.
func flagsOf(t *testing.T, args ...string) *Settings {
	t.Helper()
	s, err := Parse(args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every reloadable name is the name of a setting.
func TestReloadable(t *testing.T) {
	s := flagsOf(t)
	for _, name := range reloadable {
		if s.flags.Lookup(name) == nil {
			t.Errorf("no flag --%s", name)
		}
	}
	if !slices.IsSorted(reloadable) {
		t.Error("reloadable is not sorted")
	}
}

// A configuration that was printed and loaded again gives the same settings.
func TestPrintedConfig(t *testing.T) {
	odd := "a \"b\" \\ c\td é \x7f $"
	s := flagsOf(t, "--data", odd, "--cors-origins", "https://a.example,https://b.example", "--gap-grace", "90s", "--demo=false")
	file := filepath.Join(t.TempDir(), "weir.toml")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PrintTOML(out); err != nil {
		t.Fatal(err)
	}
	out.Close()
	again := flagsOf(t, "--config", file)
	s.each(func(f *pflag.Flag, _ source, v any) {
		if got := again.flags.Lookup(f.Name).Value.String(); got != f.Value.String() {
			t.Errorf("%s was %q and is %q after reading the printed file", f.Name, f.Value.String(), got)
		}
	})
	if again.Data != odd {
		t.Errorf("got %q, want %q", again.Data, odd)
	}
}

// Any file is either accepted, or refused with an error that names the file.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		"", "gap-grace = \"2s\"", "rate-live = 5\nrate-live = 6", "[a]\nb = 1\n[[c]]\n", "a.b.c = 1", "cors-origins = [\"a\", [1]]", "\"\" = 1",
		"data = '''\na\n'''\nhttp = 0x1F", "demo = 1979-05-27", "heartbeat = nan", "\xff", "a = {b = {c = 1}}\n# é", "gap-grace = \"1h\" # x",
	} {
		f.Add(text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, "weir.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := flagsOf(t)
		s.from[configFlag] = source{byFlag, "--config"}
		err := readFile(file, s.flags, s.from)
		if err != nil && !strings.HasPrefix(err.Error(), file+":") {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func TestASCIIHost(t *testing.T) {
	for host, want := range map[string]string{
		"streams.example.com": "streams.example.com", "Streams.Example.com.": "streams.example.com", "bücher.example": "xn--bcher-kva.example",
		"my_machine": "my_machine", "127.0.0.1": "127.0.0.1", "::1": "::1", "localhost": "localhost",
	} {
		if got, ok := ASCIIHost(host); !ok || got != want {
			t.Errorf("%s is %q, %v", host, got, ok)
		}
	}
	for _, host := range []string{"streams..example.com", ".example.com", "", strings.Repeat("a", 64)} {
		if got, ok := ASCIIHost(host); ok {
			t.Errorf("%s is accepted as the host %q", host, got)
		}
	}
}
