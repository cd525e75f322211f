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

// codes returns all error codes of package weir. It reads them from the source, so that
// TestFaultTable fails if a new code is missing in the table of faults.
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

// Every error code has exactly one row in the table of faults, with a status, a type and texts.
// Every row belongs to a code.
func TestFaultTable(t *testing.T) {
	all := codes(t)
	for _, c := range all {
		f := faultOf[c]
		if f == nil {
			t.Errorf("%s has no row in the table of faults", c)
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
412 sequence_not_next conflict_error
409 stream_closed conflict_error
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

// An internal error is logged once, with the request id, and its details are hidden from the
// client. A panic becomes a 500 response. If the response has already begun, the panic closes the
// connection instead.
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
		t.Errorf("after a panic: got %d %s, want 500 internal_error with the request id and without the panic's text", w.Code, w.Body)
	}
	if strings.Count(log.String(), id) != 1 || !strings.Contains(log.String(), "secret detail") {
		t.Errorf("the log must hold the request id once, and the panic's text: %s", &log)
	}

	log.Reset()
	w = httptest.NewRecorder()
	c := &call{h: h, w: w, r: httptest.NewRequest("GET", "/v1/streams", nil), id: newRequestID()}
	c.refuse(errors.New("disk 7 is on fire"))
	if w.Code != 500 || strings.Contains(w.Body.String(), "fire") || strings.Count(log.String(), string(c.id[:])) != 1 || !strings.Contains(log.String(), "fire") {
		t.Errorf("after an internal error: got %d %s, want 500 without details, and one log entry; the log is %s", w.Code, w.Body, &log)
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
