package service

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"weir/internal/api"
)

// Requests for pages are counted by group, not by path. Requests under /v1 are not among them,
// because the handler of /v1 counts those.
func TestVisits(t *testing.T) {
	var v visits
	h := v.counted(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("do") {
		case "hints":
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusForbidden)
		case "refuse":
			w.WriteHeader(http.StatusUnauthorized)
			w.Write([]byte("no"))
		case "flush":
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
		case "panic":
			panic(http.ErrAbortHandler)
		default:
			w.Write([]byte("page"))
		}
	}))
	for _, r := range [][2]string{
		{"GET", "/"}, {"GET", "/docs"}, {"GET", "/docs/a/b?x"}, {"HEAD", "/docs/style.css"}, {"GET", "/dashboard?do=hints"}, {"BREW", "/dashboard/streams/x/events"},
		{"POST", "/dashboard/sign-in?do=refuse"}, {"GET", "/dashboard/x?do=flush"}, {"GET", "/client.js"}, {"GET", "/client.js.map"}, {"GET", "/openapi.json"}, {"GET", "/client.js?do=panic"},
		{"GET", "/v1/streams"}, {"GET", "/docsx"}, {"GET", "/v1"}, {"GET", "/dashboards"}, {"GET", "/v1/../docs"},
	} {
		func() {
			defer func() { recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(r[0], r[1], nil))
		}()
	}
	got := map[api.Requests]bool{}
	for _, r := range v.stats() {
		got[r] = true
	}
	want := map[api.Requests]bool{
		{Method: "GET", Route: "/", Status: 200, Count: 1}:             true,
		{Method: "GET", Route: "/docs", Status: 200, Count: 2}:         true,
		{Method: "HEAD", Route: "/docs", Status: 200, Count: 1}:        true,
		{Method: "GET", Route: "/dashboard", Status: 403, Count: 1}:    true,
		{Method: "other", Route: "/dashboard", Status: 200, Count: 1}:  true,
		{Method: "POST", Route: "/dashboard", Status: 401, Count: 1}:   true,
		{Method: "GET", Route: "/dashboard", Status: 200, Count: 1}:    true,
		{Method: "GET", Route: "/client.js", Status: 200, Count: 2}:    true,
		{Method: "GET", Route: "/openapi.json", Status: 200, Count: 1}: true,
		{Method: "GET", Route: "/client.js", Status: 0, Count: 1}:      true,
	}
	if !maps.Equal(got, want) {
		t.Errorf("counted\n%v\nwant\n%v", got, want)
	}
}
