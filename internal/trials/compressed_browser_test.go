package trials

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/contract"
)

// eventPage subscribes with EventSource, and reports each event to the test.
const eventPage = `<!doctype html><script>
const report = text => fetch('/report', {method: 'POST', body: text});
const source = new EventSource('/v1/streams/%s?cursor=0');
for (const name of ['batch', 'end']) source.addEventListener(name, e => {
	report(name + ' ' + e.lastEventId + ' ' + e.data.slice(0, 200) + ' ' + e.data.length);
	if (name == 'end') source.close();
});
source.onerror = () => report('error ' + source.readyState);
</script>`

// EventSource in a real browser reads a compressed subscription. Each event arrives while the
// response is open, whether the server read its batch from the log or sent the batch right after it
// was published.
func TestBrowserReadsCompressedEvents(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	s := serve(t, t.TempDir(), "--demo=false")
	c := contract.NewT(t, s.target())
	stream := c.CreateBody(`{"name":"browser"}`).ID
	long := strings.Repeat("before ", 20_000)
	c.Publish(stream, `["`+long+`"]`)

	var compressed atomic.Int64
	to, err := url.Parse(s.target().BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	// EventSource cannot send a key, so the page reaches the server through a proxy that adds it.
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Set("Authorization", "Bearer "+liveKey)
		},
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if r.Header.Get("Content-Encoding") == "gzip" {
				compressed.Add(1)
			}
			return nil
		},
	}
	reports := make(chan string, 100)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/report":
			text, _ := io.ReadAll(r.Body)
			reports <- string(text)
		case r.URL.Path == "/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, eventPage, stream)
		case strings.HasPrefix(r.URL.Path, "/v1/"):
			proxy.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(pages.Close)
	log := open(t, browser, "127.0.0.1:1", "none", pages.URL)
	next := func(parts ...string) {
		t.Helper()
		select {
		case got := <-reports:
			for _, want := range parts {
				if !strings.Contains(got, want) {
					t.Fatalf("the browser got %q, want %s\n%s", got, want, log)
				}
			}
		case <-time.After(time.Minute):
			t.Fatalf("no report from the browser within a minute; want %v\n%s", parts, log)
		}
	}
	next("batch 1 ", fmt.Sprint(len(`{"seq":1,"ts":"2026-11-15T00:00:00.000Z","events":[""]}`)+len(long)))
	for seq := 2; seq <= 6; seq++ {
		c.Publish(stream, fmt.Sprintf(`["while it listens %d"]`, seq))
		next(fmt.Sprintf("batch %d ", seq), fmt.Sprintf("while it listens %d", seq))
	}
	c.Delete("/v1/streams/" + stream).Want(204)
	next("end 6 ", "stream_deleted")
	if compressed.Load() == 0 {
		t.Error("the subscription of the browser was not compressed")
	}
}
