package service

import (
	"net/http"
	"strings"
	"sync"

	"weir/internal/api"
)

// visits counts the requests for pages outside /v1, which counts its own: the dashboard, the manual and
// the JavaScript client. It counts by group of pages, not by path, and such requests are rare enough
// for a lock.
type visits struct {
	mu     sync.Mutex
	counts map[api.Requests]uint64 // the key has a Count of 0
}

// v1First sends requests under /v1 to v1 and all others to pages. Nearly all requests are under /v1, and
// every handler on the way to a subscription stays on its stack as long as the subscription lasts:
// the fewer, the less memory it takes.
func v1First(v1, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			v1.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// groupOf is the route under which a request is counted; empty if it is not a page.
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

// counted counts the requests that a handler answers, when they have ended.
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
			seen.status = http.StatusOK // net/http sends it if the handler sends none
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

// seenStatus records the status of a response; 0 until it has begun.
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

// Unwrap lets a live tail flush and set its deadlines.
func (w *seenStatus) Unwrap() http.ResponseWriter { return w.ResponseWriter }
