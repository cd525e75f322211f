package api

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir"
	"weir/internal/access"
	"weir/internal/engine/memory"
)

// codes returns all codes of package weir. It reads them from the source, so that a new code
// without a row fails TestFaultTable.
func codes(t *testing.T) (list []weir.Code) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok && len(s.Values) == 1 {
			if lit, ok := s.Values[0].(*ast.BasicLit); ok {
				v, _ := strconv.Unquote(lit.Value)
				list = append(list, weir.Code(v))
			}
		}
		return true
	})
	if len(list) < 20 {
		t.Fatalf("found only %d codes, want at least 20", len(list))
	}
	return list
}

// Every code has exactly one row, with a status, a type and texts, and every row has a code.
func TestFaultTable(t *testing.T) {
	all := codes(t)
	for _, c := range all {
		f := faultOf[c]
		if f == nil {
			t.Errorf("%s has no row", c)
			continue
		}
		if f.kind == "" || f.status < 400 || len(f.means) < 20 || len(f.todo) < 20 {
			t.Errorf("%s: the row is incomplete: %+v", c, f)
		}
	}
	for _, f := range faults {
		if !slices.Contains(all, f.code) {
			t.Errorf("the row %s is not a code of package weir", f.code)
		}
	}
	if len(faultOf) != len(faults) {
		t.Error("two rows have the same code")
	}
}

// The table has the statuses and types of the specification and of D26.
func TestStatuses(t *testing.T) {
	want := `401 missing_api_key authentication_error
401 invalid_api_key authentication_error
401 key_revoked authentication_error
403 project_forbidden authentication_error
403 stream_limit_reached limit_error
400 invalid_request_error invalid_request_error
400 invalid_stream_id invalid_request_error
404 stream_not_found not_found_error
409 stream_name_taken conflict_error
409 invalid_sequence conflict_error
413 payload_too_large invalid_request_error
415 unsupported_media_type invalid_request_error
422 retention_out_of_range invalid_request_error
422 sequence_too_far_ahead invalid_request_error
429 rate_limited rate_limit_error
404 not_found not_found_error
405 method_not_allowed invalid_request_error
500 internal_error api_error
503 storage_unavailable api_error
503 overloaded api_error`
	var got []string
	for _, f := range faults {
		got = append(got, strconv.Itoa(f.status)+" "+string(f.code)+" "+f.kind)
	}
	if strings.Join(got, "\n") != want {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
	}
}

// TestRateLimits is D23: every response shows its window, 429 has retry-after, and without a valid
// key 429 comes before 401.
func TestRateLimits(t *testing.T) {
	h := newHouse(t, furnish{limits: &access.Limits{Live: 3, Test: 2, Demo: 2, Anonymous: 4}})
	get := func(path string, header ...string) string {
		t.Helper()
		a := h.do("HTTP/1.1", h.request("GET", path, header, ""))
		return strconv.Itoa(a.status) + " " + h.code(path, a) + " " + a.header.Get("x-ratelimit-limit") + "/" + a.header.Get("x-ratelimit-remaining")
	}
	wants := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	wants(get("/v1/streams"), "200  3/2")
	wants(get("/v1/streams/bad"), "400 invalid_stream_id 3/1")
	wants(get("/v1/nope"), "404 not_found 3/0")
	wants(get("/v1/streams/bad"), "429 rate_limited 3/0")
	wants(get("/v1/streams", "key: test"), "200  2/1")
	for i, path := range []string{"/v1/health", "/v1/version", "/v1/streams"} {
		wants(get(path, "key: "), map[int]string{0: "200  4/3", 1: "200  4/2", 2: "401 missing_api_key 4/1"}[i])
	}
	for range 3 {
		a := h.do("h2c", h.request("OPTIONS", "/v1/streams", []string{noKey}, "")) // not counted
		wants(a.header.Get("x-ratelimit-remaining"), "1")
	}
	wants(get("/v1/streams", "key: revoked"), "401 key_revoked 4/0")
	wants(get("/v1/streams", "key: unknown"), "429 rate_limited 4/0")
	wants(get("/v1/health"), "429 rate_limited 4/0")
	wants(get("/v1/streams/{demo}", "key: ", "X-Forwarded-For: 1.2.3.4"), "200  2/1")
	wants(get("/v1/streams/{demo}", "key: demo", "X-Forwarded-For: 1.2.3.5"), "200  2/0")
	wants(get("/v1/streams/{demo}", "key: ", "X-Forwarded-For: 1.2.3.6"), "429 rate_limited 2/0")
	wants(get("/v1/streams/{demo}", "key: theirs"), "200  3/2")
}

// An internal error is logged once, with its request id, and hidden from the client. A panic
// becomes a 500. If the response has begun, it closes the connection instead.
func TestInternalErrors(t *testing.T) {
	var log bytes.Buffer
	e := memory.New()
	acc, err := access.Open(context.Background(), e, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := New(Options{Access: acc, BaseURL: "https://weir.example", Logger: slog.New(slog.NewTextHandler(&log, nil)), Health: func() (string, bool) { panic("secret detail") }})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/health", nil))
	id := w.Header().Get("X-Request-Id")
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"code":"internal_error"`) || !strings.Contains(w.Body.String(), id) || strings.Contains(w.Body.String(), "secret") || w.Header().Get("X-Ratelimit-Limit") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if strings.Count(log.String(), id) != 1 || !strings.Contains(log.String(), "secret detail") {
		t.Errorf("log: %s", &log)
	}

	log.Reset()
	w = httptest.NewRecorder()
	c := &call{h: h, w: w, r: httptest.NewRequest("GET", "/v1/streams", nil), id: newRequestID()}
	c.refuse(errors.New("disk 7 is on fire"))
	if w.Code != 500 || strings.Contains(w.Body.String(), "fire") || strings.Count(log.String(), string(c.id[:])) != 1 || !strings.Contains(log.String(), "fire") {
		t.Errorf("%d %s, log: %s", w.Code, w.Body, &log)
	}

	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("a panic in the middle of a response became %v, want http.ErrAbortHandler", p)
		}
	}()
	c = &call{h: h, w: w, r: c.r, sent: true}
	defer c.finish()
	panic("too late")
}

// TestHealth is D32, and the version and CORS with a list of origins (D29).
func TestHealth(t *testing.T) {
	state := ""
	h := newHouse(t, furnish{api: func(o *Options) {
		o.Health = func() (string, bool) { return state, state == "" }
		o.CORSOrigins = []string{"https://a.example"}
	}})
	for _, protocol := range protocols {
		for _, c := range []struct {
			state, body string
			status      int
		}{{"", `{"status":"ok","uptime_s":`, 200}, {"read_only", `{"status":"read_only","uptime_s":`, 503}} {
			state = c.state
			if a := h.do(protocol, h.request("GET", "/v1/health", nil, "")); a.status != c.status || !strings.HasPrefix(a.body, c.body) {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		a := h.do(protocol, h.request("GET", "/v1/version", []string{noKey}, ""))
		if a.body != `{"version":"v1.2.3","commit":"abc","built":"1970-01-01T00:00:00.000Z"}` {
			t.Errorf("%s", a.body)
		}
		for origin, want := range map[string]string{"https://a.example": "https://a.example", "https://b.example": "", "null": ""} {
			a := h.do(protocol, h.request("OPTIONS", "/v1/streams", []string{noKey, "Origin: " + origin}, ""))
			if a.header.Get("access-control-allow-origin") != want || a.header.Get("vary") != "Origin" || (a.header.Get("access-control-allow-methods") != "") != (want != "") {
				t.Errorf("%s: %v", origin, a.header)
			}
		}
	}
}
