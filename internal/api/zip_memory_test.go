package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/api"
	"weir/internal/budget"
)

// filler fills the memory for large loans when the response has begun.
type filler struct {
	*httptest.ResponseRecorder
	once sync.Once
	fill func()
}

func (f *filler) Write(b []byte) (int, error) {
	f.once.Do(f.fill)
	return f.ResponseRecorder.Write(b)
}

// A page that has begun gets the memory for its next runs even if other projects have taken all
// memory for large loans in between, however it is compressed.
func TestCompressedPageUnderPressure(t *testing.T) {
	for _, coding := range []string{"identity", "gzip", "zstd"} {
		batches := budget.New(24<<20, 1<<20)
		svc := startService(t)
		api.SetMemory(svc.API, nil, batches, 50*time.Millisecond)
		for _, n := range []int{40 << 10, 40 << 10, 90 << 10, 90 << 10} {
			svc.do("HTTP/1.1", svc.request("POST", "/v1/streams/{raw}/publish", []string{"Authorization: Bearer {key:live}", "Content-Type: application/octet-stream"}, strings.Repeat("0123456789abcdef", n/16)))
		}
		w := &filler{ResponseRecorder: httptest.NewRecorder()}
		w.fill = func() {
			for _, of := range []budget.Holder{{Project: "a", Key: "a"}, {Project: "b", Key: "b"}, {Project: "c", Key: "c"}, {Project: "d", Key: "d"}} {
				for _, size := range []int64{1 << 20, 4 << 10} {
					for full := false; !full; {
						ctx, cancel := context.WithCancel(t.Context())
						cancel() // Grow must not wait
						full = batches.Open(of, 1<<20, nil).Grow(ctx, size) != nil
					}
				}
			}
		}
		r := httptest.NewRequest("GET", "/v1/streams/"+svc.ids["raw"]+"/batches", nil)
		r.Header.Set("Authorization", "Bearer "+svc.keys["live"])
		r.Header.Set("Accept-Encoding", coding)
		func() {
			defer func() { recover() }()
			http.Handler(svc.API).ServeHTTP(w, r)
		}()
		body := decoded(t, w.Header().Get("Content-Encoding"), w.Body.String())
		if got := w.Header().Get("Content-Encoding"); coding != "identity" && got != coding {
			t.Errorf("%s: Content-Encoding %q", coding, got)
		}
		if got := strings.Count(body, `"seq":`); got != 4 {
			t.Errorf("%s: the page has %d batches, want 4", coding, got)
		}
	}
}
