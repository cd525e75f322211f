package main

import (
	"net/http"
	"strings"
	"sync"

	"weir/internal/api"
)

// visits counts the requests for what is served beside the interface, which counts its own: the dashboard, the manual, the
// client. They are told apart by group, never by path, and there are few of them, so that a lock will do.
type visits struct {
	mu     sync.Mutex
	counts map[api.Requests]uint64 // by what they have in common; its Count is 0
}

// interfaceFirst leads to the interface what is under it, and everything else to the pages beside it. Nearly all requests are the
// former, and each handler on the way to a subscription is on its stack for as long as it lasts.
func interfaceFirst(v1, beside http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			v1.ServeHTTP(w, r)
			return
		}
		beside.ServeHTTP(w, r)
	})
}

// groupOf is the route that a request counts for; empty for the interface.
func groupOf(path string) string {
	for _, group := range []string{"/dashboard", "/docs"} {
		if rest, ok := strings.CutPrefix(path, group); ok && (rest == "" || rest[0] == '/') {
			return group
		}
	}
	switch path {
	case "/", "/openapi.json", "/client.js":
		return path
	}
	return ""
}

// counted has the requests counted that a handler answers, when they are over.
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
			seen.status = http.StatusOK // as net/http has it
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

// stats are the requests that there were.
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

// seenStatus remembers with which status an answer began; 0: it has not.
type seenStatus struct {
	http.ResponseWriter
	status int
}

func (w *seenStatus) WriteHeader(status int) {
	if w.status == 0 && status >= 200 { // 1xx is not the answer yet
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

// Unwrap lets a live tail flush, and set its deadlines.
func (w *seenStatus) Unwrap() http.ResponseWriter { return w.ResponseWriter }
