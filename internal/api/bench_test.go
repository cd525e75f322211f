package api_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/service/servicetest"
)

// null is a ResponseWriter that does nothing, so that benchmarks measure the handler alone.
type null struct {
	header http.Header
	status int
}

func (w *null) Header() http.Header              { return w.header }
func (w *null) Write(p []byte) (int, error)      { return len(p), nil }
func (w *null) WriteHeader(status int)           { w.status = status }
func (w *null) SetReadDeadline(time.Time) error  { return nil }
func (w *null) SetWriteDeadline(time.Time) error { return nil }
func (w *null) Flush()                           {}

// BenchmarkHandler measures one request through the handler, without a server. The case "publish"
// includes the hub on the memory engine. In the case "duplicate" the handler reads no body, and the
// hub stores nothing.
func BenchmarkHandler(b *testing.B) {
	body := `{"events":["` + strings.Repeat("x", 1000) + `"]}`
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		fields                   []string
	}{
		{"publish", "POST", "/v1/streams/{id}/publish", body, 202, nil},
		{"numbered", "POST", "/v1/streams/{id}/", body, 202, nil},
		{"contiguous", "POST", "/v1/streams/{id}/", body, 202, []string{"x-svc-contiguous: true", "x-svc-publisher: 0123456789abcdef"}},
		{"duplicate", "POST", "/v1/streams/{id}/1", body, 200, nil},
		{"cursor", "GET", "/v1/streams/{id}/cursor", "", 200, nil},
		{"health", "GET", "/v1/health", "", 200, nil},
		{"refused", "GET", "/v1/nope", "", 404, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			svc := startService(b) // each case needs its own service: "publish" evicts the batch that "duplicate" needs
			svc.publish("id", "1")
			req := svc.request(c.method, c.path, append(c.fields, jsonBody), c.body)
			path, seq := req.URL.Path, 1
			req.RemoteAddr = "127.0.0.1:1"
			reader := strings.NewReader(c.body)
			req.Body = io.NopCloser(reader)
			w := &null{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				reader.Reset(c.body)
				clear(w.header)
				if strings.HasSuffix(path, "/") { // each publish needs the next sequence number
					seq++
					req.URL.Path = path + strconv.Itoa(seq)
				}
				svc.API.ServeHTTP(w, req)
				if w.status != c.status {
					b.Fatal(w.status)
				}
			}
		})
	}
}

// BenchmarkServer measures a publish over HTTP/1.1. The case "nothing" is the baseline: a server
// that only reads the body and responds with 202.
func BenchmarkServer(b *testing.B) {
	svc := startService(b)
	nothing := startServiceWith(b, servicetest.Options{Wrap: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(202)
		})
	}})
	body := `{"events":["` + strings.Repeat("x", 1000) + `"]}`
	for _, s := range []struct {
		name string
		*testService
	}{{"nothing", nothing}, {"publish", svc}} {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp, err := s.client["HTTP/1.1"].Do(s.request("POST", "/v1/streams/{id}/publish", []string{jsonBody}, body))
					if err != nil || resp.StatusCode != 202 {
						b.Error(resp, err)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		})
	}
}
