package js

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestBundle checks that the bundle was made from the present sources: its source map holds them.
// "make lint" also checks that tools/bundle makes this very bundle.
func TestBundle(t *testing.T) {
	text, err := files.ReadFile("dist/client.js.map")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Sources        []string
		SourcesContent []string
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	bundled := map[string]string{}
	for i, name := range m.Sources {
		bundled[path.Base(name)] = m.SourcesContent[i]
	}
	sources, err := filepath.Glob("src/*.js")
	if err != nil || len(sources) == 0 {
		t.Fatalf("found %d sources: %v", len(sources), err)
	}
	for _, name := range sources {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// index.js only exports what others define, so nothing of it is left to map.
		if base := filepath.Base(name); base != "index.js" && bundled[base] != string(source) {
			t.Errorf("dist does not contain the present %s: run make client", name)
		}
	}
}

func TestHandler(t *testing.T) {
	s := httptest.NewServer(Handler())
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}} // so that the test sees what is sent
	defer client.CloseIdleConnections()
	do := func(method, path string, fields ...string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequest(method, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		resp, err := client.Do(r)
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
	tags := map[string]bool{}
	for _, c := range []struct{ path, contentType string }{{"/client.js", "text/javascript; charset=utf-8"}, {"/client.js.map", "application/json"}} {
		want, err := files.ReadFile("dist" + c.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, accepted := range []string{"", "br, GZIP", "deflate, gzip;q=0.5", "gzip;q=0, *", "br"} {
			resp, body := do("GET", c.path, "Accept-Encoding", accepted)
			for name, want := range map[string]string{
				"Content-Type": c.contentType, "Access-Control-Allow-Origin": "*",
				"X-Content-Type-Options": "nosniff", "Cache-Control": "public, max-age=300", "Vary": "Accept-Encoding",
			} {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("%s: %s is %q, want %q", c.path, name, got, want)
				}
			}
			if resp.StatusCode != 200 || resp.ContentLength != int64(len(body)) {
				t.Errorf("%s: %s with %d bytes, and %d are announced", c.path, resp.Status, len(body), resp.ContentLength)
			}
			zipped := strings.Contains(strings.ToLower(accepted), "gzip") && !strings.Contains(accepted, "q=0,")
			if got := resp.Header.Get("Content-Encoding"); zipped != (got == "gzip") {
				t.Errorf("%s: a client that accepts %q got the encoding %q", c.path, accepted, got)
			}
			if zipped {
				body = unzip(t, body)
			}
			if body != string(want) {
				t.Errorf("%s: a client that accepts %q got another file", c.path, accepted)
			}
			tag := resp.Header.Get("ETag")
			tags[tag] = true
			if head, body := do("HEAD", c.path, "Accept-Encoding", accepted); head.Header.Get("ETag") != tag || head.ContentLength != resp.ContentLength || body != "" {
				t.Errorf("HEAD %s: tag %s with %d bytes", c.path, head.Header.Get("ETag"), head.ContentLength)
			}
			if resp, body := do("GET", c.path, "Accept-Encoding", accepted, "If-None-Match", `"x", W/`+tag); resp.StatusCode != 304 || body != "" || resp.Header.Get("ETag") != tag {
				t.Errorf("conditional request: %s with %d bytes, want 304 without a body", resp.Status, len(body))
			}
		}
		if resp, _ := do("POST", c.path); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST: %s, allow %q", resp.Status, resp.Header.Get("Allow"))
		}
	}
	if len(tags) != 4 {
		t.Errorf("the two variants of two files have the tags %v, want four", tags)
	}
	if resp, _ := do("GET", "/client.mjs"); resp.StatusCode != 404 {
		t.Errorf("another path: %s", resp.Status)
	}
}

func unzip(t *testing.T, text string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}
