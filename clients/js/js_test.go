package js

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestModules checks that the list of modules names exactly the files in src.
func TestModules(t *testing.T) {
	files, err := sources.ReadDir("src")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		found = append(found, strings.TrimSuffix(f.Name(), path.Ext(f.Name())))
	}
	if listed := slices.Sorted(slices.Values(modules)); !slices.Equal(found, listed) {
		t.Errorf("src has %q, the list has %q", found, listed)
	}
}

// TestModule checks that the concatenated module imports nothing, exports what the package exports,
// and declares no name twice.
func TestModule(t *testing.T) {
	text := string(Module())
	if m := regexp.MustCompile(`(?m)^import .*|^export .* from .*`).FindString(text); m != "" {
		t.Errorf("the module is not self-contained: %s", m)
	}
	var exports []string
	for _, m := range regexp.MustCompile(`(?m)^export (.*)$`).FindAllStringSubmatch(text, -1) {
		exports = append(exports, m[1])
	}
	want := []string{"{ Client };", "{ ConnectionError, GapError, PublishError, ResetError, WeirError };", "{ Publisher };", "{ Subscription };"}
	if !slices.Equal(exports, want) {
		t.Errorf("exports %q, want %q", exports, want)
	}
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:async )?(?:class|const|let|function)\*? (\w+)`).FindAllStringSubmatch(text, -1) {
		if names[m[1]] {
			t.Errorf("two modules declare %s, which clashes in the concatenated module", m[1])
		}
		names[m[1]] = true
	}
	if !names["Client"] || !names["EventParser"] {
		t.Errorf("declared names: %v, want at least Client and EventParser", names)
	}
}

func TestHandler(t *testing.T) {
	s := httptest.NewServer(Handler())
	defer s.Close()
	do := func(method, etag string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequest(method, s.URL+"/client.js", nil)
		if err != nil {
			t.Fatal(err)
		}
		if etag != "" {
			r.Header.Set("If-None-Match", etag)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(b)
	}
	for _, method := range []string{"GET", "HEAD"} {
		resp, body := do(method, "")
		for name, want := range map[string]string{
			"Content-Type": "text/javascript; charset=utf-8", "Access-Control-Allow-Origin": "*",
			"X-Content-Type-Options": "nosniff", "Cache-Control": "public, max-age=300",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", method, name, got, want)
			}
		}
		if resp.StatusCode != 200 || resp.ContentLength != int64(len(Module())) {
			t.Errorf("%s: %s with %d bytes", method, resp.Status, resp.ContentLength)
		}
		if method == "GET" && body != string(Module()) || method == "HEAD" && body != "" {
			t.Errorf("%s: unexpected body of %d bytes", method, len(body))
		}
	}
	first, _ := do("GET", "")
	if resp, body := do("GET", first.Header.Get("ETag")); resp.StatusCode != 304 || body != "" {
		t.Errorf("conditional request: %s with %d bytes, want 304 without a body", resp.Status, len(body))
	}
	if resp, _ := do("POST", ""); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %s, allow %q", resp.Status, resp.Header.Get("Allow"))
	}
}
