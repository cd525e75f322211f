package manual

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// oneManual is built once for all tests, because building takes a second.
var oneManual = sync.OnceValue(func() http.Handler {
	return New(Options{
		Faults:   []Fault{{Code: "rate_limited", Status: 429, Type: "rate_limit_error", RetryAfter: true, Means: "Too <many>.", Todo: "Wait."}},
		Commands: []Command{{Use: "weir key ls", Short: "List", Long: "List <all> keys.", Example: "weir key ls", Flags: []Flag{{"project", "NAME", "", "list only the keys of this project"}}}},
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) }))
})

// sample returns a manual with one entry on every page that is generated from a table.
func sample(t *testing.T) http.Handler {
	t.Helper()
	return oneManual()
}

func ask(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// allPages returns the paths of all pages: those of the navigation, and the list of pages.
func allPages() []string {
	var all []string
	for _, l := range leaves() {
		all = append(all, l.path)
	}
	return append(all, "/docs/search")
}

var (
	ids    = regexp.MustCompile(` id="([^"]+)"`)
	hrefs  = regexp.MustCompile(` (?:href|src)="([^"]*)"`)
	opened = regexp.MustCompile(`<h([1-6])`)
)

// TestPages checks every page: it has one title, headings that do not skip a level, landmarks,
// unique ids, and links whose page and anchor exist. Its only script is manual.js. It contains no
// inline style, and loads nothing from other sites.
func TestPages(t *testing.T) {
	h := sample(t)
	anchors := map[string][]string{"/openapi.json": nil, "/docs/style.css": nil, "/docs/manual.js": nil, "/client.js": nil}
	for _, p := range allPages() {
		for _, m := range ids.FindAllStringSubmatch(ask(h, "GET", p).Body.String(), -1) {
			if slices.Contains(anchors[p], m[1]) {
				t.Errorf("%s: duplicate id %s", p, m[1])
			}
			anchors[p] = append(anchors[p], m[1])
		}
	}
	for _, p := range allPages() {
		a := ask(h, "GET", p)
		body := a.Body.String()
		if a.Code != 200 || a.Header().Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(a.Header().Get("Content-Security-Policy"), "default-src 'none'; style-src 'self'") {
			t.Errorf("%s: %d %v", p, a.Code, a.Header())
		}
		body = strings.Replace(body, `<script type="module" src="/docs/manual.js"></script>`, "", 1)
		for _, word := range []string{"<script", "<style", " style=", " onclick=", "<iframe", "&lt;no value&gt;", "ZgotmplZ", "%!"} {
			if strings.Contains(body, word) {
				t.Errorf("%s contains %s", p, word)
			}
		}
		for _, word := range []string{`<html lang="en">`, "<main id=\"content\">", `aria-label="Pages"`, `aria-current="page"`, "name=\"viewport\""} {
			if !strings.Contains(body, word) && (p != "/docs/search" || word != `aria-current="page"`) {
				t.Errorf("%s lacks %s", p, word)
			}
		}
		level := "0"
		for _, m := range opened.FindAllStringSubmatch(body, -1) {
			if m[1] > level && m[1][0]-level[0] > 1 || m[1] == "1" && level != "0" {
				t.Errorf("%s: h%s after h%s", p, m[1], level)
			}
			level = m[1]
		}
		for _, m := range hrefs.FindAllStringSubmatch(body, -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if path == "" {
				path = p
			}
			found, ok := anchors[path]
			switch {
			case strings.HasPrefix(m[1], "data:") || strings.HasPrefix(m[1], "/docs/images/") || // TestPictures checks these
				strings.HasPrefix(m[1], "https://") && strings.Contains(body, `<a href="`+m[1]) || strings.HasPrefix(m[1], printed):
			case !ok || anchor != "" && !slices.Contains(found, anchor) && path != "/docs/errors" && path != "/docs/cli":
				t.Errorf("%s: broken link to %s", p, m[1])
			}
		}
	}
}

func TestServing(t *testing.T) {
	h := sample(t)
	for _, r := range []struct {
		method, path string
		status       int
		to           string
	}{
		{"GET", "/", 302, "/docs"}, {"GET", "/docs/", 302, "/docs"}, {"GET", "/docs/command-line", 302, "/docs/cli"}, {"GET", "/docs/nowhere", 404, ""}, {"GET", "/docs/manual/index.md", 404, ""}, {"GET", "/docs/../docs", 404, ""},
		{"POST", "/docs", 405, ""}, {"DELETE", "/openapi.json", 405, ""}, {"HEAD", "/docs/errors", 200, ""}, {"GET", "/docs/style.css", 200, ""},
		{"GET", "/v1/streams", 418, ""}, {"GET", "/docsx", 418, ""}, {"POST", "/", 405, ""}, {"GET", "/elsewhere", 418, ""},
	} {
		a := ask(h, r.method, r.path)
		if a.Code != r.status || a.Code != 418 && a.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %d %v, want %d", r.method, r.path, a.Code, a.Header(), r.status)
		}
		if r.method == "HEAD" && a.Body.Len() > 0 {
			t.Errorf("%s %s has a body", r.method, r.path)
		}
		if to := a.Header().Get("Location"); r.status == 302 && to != r.to {
			t.Errorf("%s redirects to %s, want %s", r.path, to, r.to)
		}
	}
	if got := ask(h, "GET", "/openapi.json").Header(); got.Get("Content-Type") != "application/json" || got.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("/openapi.json: %v", got)
	}
}

// TestCaching checks that an unchanged page is not sent again, and that clients that accept gzip
// get a compressed page.
func TestCaching(t *testing.T) {
	h := sample(t)
	whole := ask(h, "GET", "/docs/concepts")
	zipped := ask(h, "GET", "/docs/concepts", "Accept-Encoding", "br, gzip;q=0.8")
	if zipped.Header().Get("Content-Encoding") != "gzip" || zipped.Body.Len() > whole.Body.Len()/2 {
		t.Errorf("%d of %d bytes after compression: %v", zipped.Body.Len(), whole.Body.Len(), zipped.Header())
	}
	tag := zipped.Header().Get("Etag")
	z, err := gzip.NewReader(zipped.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || string(text) != whole.Body.String() {
		t.Errorf("the compressed body is not the page: %v", err)
	}
	if a := ask(h, "GET", "/docs/concepts", "Accept-Encoding", "gzip", "If-None-Match", tag); a.Code != 304 || a.Body.Len() > 0 {
		t.Errorf("an unchanged page: status %d, want 304", a.Code)
	}
	if a := ask(h, "GET", "/docs/concepts", "If-None-Match", tag); a.Code != 200 {
		t.Errorf("the ETag of the compressed page matched the plain page: status %d, want 200", a.Code)
	}
	if a := ask(h, "GET", "/docs/concepts", "Accept-Encoding", "gzip;q=0"); a.Header().Get("Content-Encoding") != "" {
		t.Error("a client that does not accept gzip got a compressed page")
	}
}

// TestTables checks the pages generated from tables. Their texts are escaped: they are text, not
// markup.
func TestTables(t *testing.T) {
	h := sample(t)
	for path, want := range map[string][]string{
		"/docs/errors": {`<section class="fault" id="rate_limited">`, "429 Too Many Requests", "Too &lt;many&gt;.", "with <code class=\"word\">retry-after</code>"},
		"/docs/cli":    {`<h2 id="publishing">`, `<h2 id="every-command">`, `<h3 id="weir-key-ls">`, `<li><a href="#weir-key-ls">`, "List &lt;all&gt; keys.", "--project NAME"},
		"/docs/reference": {`<h2 id="publishAt">Publish with a given sequence number`, `<code class="word">/v1/streams/{id}/batches/{seq}</code>`, `href="/docs/errors#sequence_too_far_ahead"`,
			`<h3 id="Ack">`, "x-ratelimit-remaining", "Idempotency-Key", "Last-Event-ID", "text/event-stream", "event: gap"},
	} {
		body := ask(h, "GET", path).Body.String()
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("%s lacks %s", path, w)
			}
		}
	}
}

// TestAddresses checks that blocks of code have the addresses of the server, on pages from Markdown
// and on generated ones, and that the text keeps the default addresses, which it explains.
func TestAddresses(t *testing.T) {
	h := New(Options{
		URL: "https://streams.example.org/a&b", HTTPS: "https://127.0.0.1:9443",
		Commands: []Command{{Use: "weir tail", Short: "Tail", Example: "weir tail --url http://127.0.0.1:8080 x", Flags: []Flag{{"url", "URL", "http://127.0.0.1:8080", "address"}}}},
	}, http.NotFoundHandler())
	for path, want := range map[string]string{
		"/docs":           "export WEIR_URL=https://streams.example.org/a&amp;b\n",
		"/docs/operating": "curl --http2 --cacert weir-data/tls/ca.pem https://127.0.0.1:9443/v1/health",
		"/docs/cli":       "weir tail --url https://streams.example.org/a&amp;b x</code></pre>",
	} {
		if body := ask(h, "GET", path).Body.String(); !strings.Contains(body, want) {
			t.Errorf("%s lacks %s", path, want)
		}
	}
	for _, p := range allPages() {
		for _, block := range codeBlock.FindAllString(ask(h, "GET", p).Body.String(), -1) {
			if strings.Contains(block, "127.0.0.1:8080") || strings.Contains(block, "127.0.0.1:8443") {
				t.Errorf("%s has a default address in a block:\n%s", p, block)
			}
		}
	}
	for path, want := range map[string]string{"/docs/cli": `<code class="word">http://127.0.0.1:8080</code>`, "/docs/operating": `<a href="https://127.0.0.1:8443">`} {
		if body := ask(h, "GET", path).Body.String(); !strings.Contains(body, want) {
			t.Errorf("%s lacks %s", path, want)
		}
	}
}
