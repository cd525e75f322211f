package durable_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/durable"
	"weir/internal/service/servicetest"
)

// loopWriter is a response writer like that of an event loop.
type loopWriter struct {
	*httptest.ResponseRecorder
	ready chan interface{ Finish() }
}

func (w loopWriter) ReuseBody() {}

func (w loopWriter) Ready(f interface{ Finish() }) { w.ready <- f }

// ServeLater begins every PUT without a body, and does not wait for its outcome. It leaves all other
// requests to ServeHTTP.
func TestServeLater(t *testing.T) {
	svc := servicetest.Start(t, servicetest.Options{})
	h := durable.New(durable.Options{Hub: svc.Hub, Access: svc.Access, API: svc.API})
	request := func(method, path, body, field string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+svc.Key)
		r.Header.Set("Content-Type", "text/plain")
		if name, value, ok := strings.Cut(field, ": "); ok {
			r.Header.Set(name, value)
		}
		return r
	}
	for _, c := range []struct {
		name, method, path, body, field string
		taken, done                     bool
		status                          int
	}{
		{"a new stream", "PUT", "/ds/a", "", "", true, false, 201},
		{"a stream that exists", "PUT", "/ds/a", "", "", true, false, 200},
		{"a stream that exists with another type", "PUT", "/ds/a", "", "Content-Type: text/html", true, false, 409},
		{"a closed stream", "PUT", "/ds/b", "", "Stream-Closed: true", true, false, 201},
		{"a fork", "PUT", "/ds/c", "", "Stream-Forked-From: /ds/a", true, false, 201},
		{"a fork of nothing", "PUT", "/ds/d", "", "Stream-Forked-From: /ds/x", true, false, 404},
		{"a stream that expires", "PUT", "/ds/e", "", "Stream-Ttl: 60", true, false, 201},
		{"a stream that has expired", "PUT", "/ds/f", "", "Stream-Ttl: 0", true, true, 201},
		{"a bad lifetime", "PUT", "/ds/g", "", "Stream-Ttl: -1", true, true, 400},
		{"a bad path", "PUT", "/ds/__ds/x", "", "", true, true, 404},
		{"no key", "PUT", "/ds/g", "", "Authorization: ", true, true, 401},
		{"a PUT with a body", "PUT", "/ds/g", "x", "", false, false, 0},
		{"an append", "POST", "/ds/a", "x", "", false, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := loopWriter{httptest.NewRecorder(), make(chan interface{ Finish() }, 1)}
			taken, done := h.ServeLater(w, request(c.method, c.path, c.body, c.field))
			if taken != c.taken || done != c.done {
				t.Fatalf("taken %v, done %v; want %v and %v", taken, done, c.taken, c.done)
			}
			if taken && !done {
				(<-w.ready).Finish()
			}
			if taken && w.Code != c.status {
				t.Errorf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if at := w.Header().Get("Location"); (c.status == 201) != (at == "http://example.com"+c.path) {
				t.Errorf("status %d, Location %q", c.status, at)
			}
		})
	}
	w := httptest.NewRecorder()
	if taken, _ := h.ServeLater(w, request("PUT", "/ds/new", "", "")); taken {
		t.Error("ServeLater took a request whose response writer has no method Ready")
	}
}
