package dashboard_test

import (
	"context"
	"go/format"
	"html"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir"
	"weir/internal/access"
)

var copied = regexp.MustCompile(`<pre id="program-([a-z]+)"[^>]*>((?s:.*?))</pre>`)

// connected creates a key on the Connect page of a stream. It returns the key, and the programs that
// the page then shows.
func (svc *testService) connected(b *browser, stream, use string) (access.Key, map[string]string) {
	svc.t.Helper()
	page := "/dashboard/streams/" + stream + "/connect"
	if text := b.see(page + "?use=" + use); !strings.Contains(text, "svc_live_…") || !strings.Contains(text, "Create a key") {
		svc.t.Errorf("without a key, the page shows %s", text)
	}
	status, _, header := b.post(page, "use", use)
	at := header.Get("Location")
	if status != http.StatusSeeOther || !strings.Contains(at, "key=") {
		svc.t.Fatalf("create a key: status %d, redirect to %q", status, at)
	}
	programs := map[string]string{}
	for _, m := range copied.FindAllStringSubmatch(b.see(at), -1) {
		programs[m[1]] = html.UnescapeString(m[2])
	}
	if text := b.see(at); keyPattern.MatchString(text) {
		svc.t.Error("the key is shown twice")
	}
	k, ok := svc.Access.Key(at[strings.Index(at, "key=")+len("key="):])
	if !ok {
		svc.t.Fatal("there is no such key")
	}
	return k, programs
}

// The programs on the Connect page contain the address, the stream and a new key with exactly one
// permission, and they work as they are.
func TestConnect(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	raw := string(svc.rawStream())
	python, err := filepath.Abs("../../clients/python/src")
	svc.must(err)
	for _, c := range []struct {
		stream, use string
		can         access.Permission
		want        []string
	}{
		{string(svc.stream), "publish", access.Publish, []string{"curl", "go", "javascript", "python", "shell"}},
		{string(svc.stream), "subscribe", access.Read, []string{"curl", "go", "javascript", "python", "shell"}},
		{raw, "publish", access.Publish, []string{"curl", "javascript", "python"}},
		{raw, "subscribe", access.Read, []string{"curl", "javascript", "shell"}},
	} {
		k, programs := svc.connected(b, c.stream, c.use)
		if !slices.Equal(k.Permissions, []access.Permission{c.can}) || len(k.Streams) != 1 || string(k.Streams[0]) != c.stream {
			t.Errorf("%s: the key has the permissions %v on the streams %v", c.use, k.Permissions, k.Streams)
		}
		for _, name := range c.want {
			if text := programs[name]; !strings.Contains(text, svc.HTTP) || !strings.Contains(text, c.stream) || !keyPattern.MatchString(text) || strings.Contains(text, "{url}") || strings.Contains(text, "{curl}") {
				t.Errorf("%s with %s: the program is %q", c.use, name, text)
			}
		}
		if len(programs) != len(c.want) {
			t.Errorf("%s: %d programs, want %v", c.use, len(programs), c.want)
		}
		if text := programs["go"]; text != "" {
			file := filepath.Join(t.TempDir(), "main.go")
			svc.must(os.WriteFile(file, []byte(text+"\n"), 0o600))
			vet := exec.Command("go", "vet", file)
			vet.Dir = "../.." // the module that the program imports
			if out, err := vet.CombinedOutput(); err != nil {
				t.Errorf("the Go program does not compile: %v %s", err, out)
			}
			if tidy, err := format.Source([]byte(text + "\n")); err != nil || string(tidy) != text+"\n" {
				t.Errorf("the Go program is not formatted: %v", err)
			}
		}
		if c.use != "publish" {
			continue
		}
		for name, command := range map[string][]string{"curl": {"sh", "-c"}, "python": {"python3", "-c"}} {
			if _, err := exec.LookPath(map[string]string{"curl": "curl", "python": "python3"}[name]); err != nil {
				continue
			}
			cmd := exec.Command(command[0], command[1], programs[name])
			cmd.Env = append(os.Environ(), "PYTHONPATH="+python, "PYTHONDONTWRITEBYTECODE=1")
			before := svc.cursor(c.stream)
			if out, err := cmd.CombinedOutput(); err != nil || svc.cursor(c.stream) != before+1 {
				t.Errorf("the program for %s stored nothing: %v %s", name, err, out)
			}
		}
	}
	if text := b.see("/dashboard/streams/" + string(svc.stream)); !strings.Contains(text, "/connect\">Connect</a>") {
		t.Error("the page of the stream has no link to Connect")
	}
}

// cursor returns the cursor of a stream.
func (svc *testService) cursor(id string) weir.Seq {
	svc.t.Helper()
	s, err := svc.Hub.Stream(weir.StreamID(id))
	svc.must(err)
	o, err := s.Object(context.Background())
	svc.must(err)
	return o.Cursor
}
