package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/budget"
)

// A large body or batch is refused while the memory budget is used up (D26). Small ones have a lane
// of their own (D34), and every call returns the memory it has borrowed.
func TestMemoryOfBodies(t *testing.T) {
	bodies, batches := budget.New(8<<20, 1<<20), budget.New(8<<20, 1<<20)
	h := newHouse(t, furnish{api: func(o *Options) { o.Bodies, o.Batches = bodies, batches }})
	h.api.memoryWait = 100 * time.Millisecond
	large, small := strings.Repeat("x", 700<<10), strings.Repeat("x", 200<<10)
	post := func(protocol, body string) answer {
		return h.do(protocol, h.request("POST", "/v1/streams/{raw}/publish", []string{"Authorization: Bearer {key:live}", "Content-Type: application/octet-stream"}, body))
	}
	get := func(protocol string) answer {
		return h.do(protocol, h.request("GET", "/v1/streams/{raw}/batches/1", []string{"Authorization: Bearer {key:live}"}, ""))
	}
	for _, protocol := range protocols {
		if a := post(protocol, large); a.status != http.StatusAccepted {
			t.Fatalf("%s: %d %s", protocol, a.status, a.body)
		}
	}
	var loans []*budget.Loan
	for _, b := range []*budget.Budget{bodies, batches} {
		if held := b.Stats().Held; held != 0 {
			t.Fatalf("calls have not returned %d bytes", held)
		}
		for full := false; !full; {
			l := b.Open(budget.Holder{Project: string(h.project), Key: h.records["live"].ID}, 1<<20, nil)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			full = l.Grow(ctx, 1<<20) != nil
			cancel()
			loans = append(loans, l)
		}
	}
	refused := make(chan answer, 2*len(protocols))
	for _, protocol := range protocols {
		go func() { refused <- post(protocol, large) }()
		go func() { refused <- get(protocol) }()
		if a := post(protocol, small); a.status != http.StatusAccepted {
			t.Errorf("%s: a small body got %d %s", protocol, a.status, a.body)
		}
	}
	for range cap(refused) {
		if a := <-refused; a.status != http.StatusServiceUnavailable || h.code("memory", a) != "overloaded" || a.header.Get("Retry-After") == "" {
			t.Errorf("with no memory free: %d %s, want 503 overloaded", a.status, a.body)
		}
	}
	for _, l := range loans {
		l.End()
	}
	for _, protocol := range protocols {
		if a, b := post(protocol, large), get(protocol); a.status != http.StatusAccepted || b.body != large {
			t.Errorf("%s: after the memory was returned: publish got %d, read got %d", protocol, a.status, b.status)
		}
	}
}

// What is kept of a body does not keep the rest of it in memory.
func TestPayloadIsCopiedOutOfLargeBody(t *testing.T) {
	body := []byte(`{"pad":"` + strings.Repeat("x", 1000) + `","events":[1, 2]}`)
	payload, _, err := events(body)
	if err != nil {
		t.Fatal(err)
	}
	clear(body)
	if string(payload) != "[1,2]" {
		t.Errorf("the payload is a part of the body: %q after the body was cleared", payload)
	}
	whole := []byte(`{"events":["` + strings.Repeat("x", 1000) + `"]}`)
	if payload, _, err = events(whole); err != nil {
		t.Fatal(err)
	}
	clear(whole)
	if payload[0] != 0 {
		t.Error("a payload that is nearly as large as the body was copied")
	}
	if b := compact(make([]byte, 1<<20), make([]byte, 0, 4<<20)); cap(b) > 2<<20 {
		t.Errorf("a body of 1 MiB keeps a buffer of %d bytes", cap(b))
	}
}
