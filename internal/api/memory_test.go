package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/api"
	"weir/internal/budget"
)

// While the memory budget is used up, the API refuses large bodies and requests for large batches
// (D26). Part of the budget is reserved for small bodies, so they are still accepted (D34). Every
// call returns the memory that it has borrowed.
func TestMemoryOfBodies(t *testing.T) {
	bodies, batches := budget.New(8<<20, 1<<20), budget.New(8<<20, 1<<20)
	svc := startService(t)
	api.SetMemory(svc.API, bodies, batches, 100*time.Millisecond)
	large, small := strings.Repeat("x", 700<<10), strings.Repeat("x", 200<<10)
	post := func(protocol, body string) answer {
		return svc.do(protocol, svc.request("POST", "/v1/streams/{raw}/publish", []string{"Authorization: Bearer {key:live}", "Content-Type: application/octet-stream"}, body))
	}
	get := func(protocol string) answer {
		return svc.do(protocol, svc.request("GET", "/v1/streams/{raw}/batches/1", []string{"Authorization: Bearer {key:live}"}, ""))
	}
	page := func(protocol string) answer {
		return svc.do(protocol, svc.request("GET", "/v1/streams/{raw}/batches", []string{"Authorization: Bearer {key:live}"}, ""))
	}
	for _, protocol := range protocols {
		if a := post(protocol, large); a.status != http.StatusAccepted {
			t.Fatalf("%s: publishing a large body got %d %s, want 202", protocol, a.status, a.body)
		}
	}
	var loans []*budget.Loan
	for _, b := range []*budget.Budget{bodies, batches} {
		if held := b.Stats().Held; held != 0 {
			t.Fatalf("after all calls have ended, %d bytes were not returned to the budget", held)
		}
		for full := false; !full; {
			l := b.Open(budget.Holder{Project: string(svc.Project), Key: svc.records["live"].ID}, 1<<20, nil)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			full = l.Grow(ctx, 1<<20) != nil
			cancel()
			loans = append(loans, l)
		}
	}
	refused := make(chan answer, 3*len(protocols))
	for _, protocol := range protocols {
		go func() { refused <- post(protocol, large) }()
		go func() { refused <- get(protocol) }()
		go func() { refused <- page(protocol) }()
		if a := post(protocol, small); a.status != http.StatusAccepted {
			t.Errorf("%s: a small body got %d %s, want 202", protocol, a.status, a.body)
		}
	}
	for range cap(refused) {
		if a := <-refused; a.status != http.StatusServiceUnavailable || svc.code("memory", a) != "overloaded" || a.header.Get("Retry-After") == "" {
			t.Errorf("with no memory free: %d %s, want 503 overloaded", a.status, a.body)
		}
	}
	for _, l := range loans {
		l.End()
	}
	for _, protocol := range protocols {
		if a, b, c := post(protocol, large), get(protocol), page(protocol); a.status != http.StatusAccepted || b.body != large || len(c.body) < 2*len(large) {
			t.Errorf("%s: after the memory was returned: publish got %d, read got %d, page got %d with %d bytes", protocol, a.status, b.status, c.status, len(c.body))
		}
	}
}
