package service

import (
	"net/http"
	"strings"
	"sync"

	"weir/internal/api"
	"weir/internal/durable"
)

// visits counts the requests for pages outside /v1: the dashboard, the manual and the JavaScript
// client. The handler of /v1 counts its own requests. The type visits counts by group of pages and
// not by path. These requests are rare, so one lock for all counters is fast enough.
type visits struct {
	mu     sync.Mutex
	counts map[api.Requests]uint64 // in each map key, the field Count is 0
}

// v1First passes requests under /v1 to the handler v1, those under /ds to the handler ds, and all
// others to the handler pages. It comes before the other handlers, because every handler that
// passes a subscription on stays on the stack while the subscription lasts. With fewer handlers in
// front of /v1, a subscription takes less memory.
func v1First(v1, ds, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			v1.ServeHTTP(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, durable.Prefix) {
			ds.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// publishing is the handler of all requests. If an event loop has read a request that publishes, or
// that creates a stream, the request goes directly to the handler of /v1 or /ds. That handler
// starts the work and does not wait for the disk.
type publishing struct {
	http.Handler
	v1 *api.Handler
	ds *durable.Handler
}

// ServeLater implements loop.Later.
func (p publishing) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	if strings.HasPrefix(r.URL.Path, durable.Prefix) {
		return p.ds.ServeLater(w, r)
	}
	return p.v1.ServeLater(w, r)
}

// Flush implements loop.Flusher.
func (p publishing) Flush() { p.v1.Flush() }

// groupOf returns the group under which visits counts a request. It is empty if the path is not
// that of a page.
func groupOf(path string) string {
	for _, group := range []string{"/dashboard", "/docs"} {
		if rest, ok := strings.CutPrefix(path, group); ok && (rest == "" || rest[0] == '/') {
			return group
		}
	}
	switch path {
	case "/", "/openapi.json", "/client.js":
		return path
	case "/client.js.map":
		return "/client.js"
	}
	return ""
}

// counted returns a handler that passes requests to h and counts each of them when it has ended.
func (v *visits) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		group := groupOf(r.URL.Path)
		if group == "" {
			h.ServeHTTP(w, r)
			return
		}
		seen := &seenStatus{ResponseWriter: w}
		defer func() { v.add(r.Method, group, seen.status) }()
		h.ServeHTTP(seen, r)
		if seen.status == 0 {
			seen.status = http.StatusOK // net/http sends 200 if the handler sends no status
		}
	})
}

func (v *visits) add(method, group string, status int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.counts == nil {
		v.counts = map[api.Requests]uint64{}
	}
	v.counts[api.Requests{Method: api.MethodName(method), Route: group, Status: status}]++
}

// stats returns the counts so far.
func (v *visits) stats() []api.Requests {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []api.Requests
	for r, n := range v.counts {
		r.Count = n
		all = append(all, r)
	}
	return all
}

// seenStatus records the status of a response. The status is 0 until the handler sends it.
type seenStatus struct {
	http.ResponseWriter
	status int
}

func (w *seenStatus) WriteHeader(status int) {
	if w.status == 0 && status >= 200 { // 1xx is not the final status
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *seenStatus) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap gives http.ResponseController access to the wrapped writer. Handlers need this to
// flush and to set deadlines.
func (w *seenStatus) Unwrap() http.ResponseWriter { return w.ResponseWriter }
