package api

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The API has a separate counter for every status that it can send. The lookup tables statusPlace
// and methodPlace agree with the lists statuses and methodNames.
func TestStatusAndMethodPlaces(t *testing.T) {
	for _, f := range faults {
		if !slices.Contains(statuses[:], f.status) {
			t.Errorf("status %d of %s is not counted separately", f.status, f.code)
		}
	}
	for i, s := range statuses {
		if int(statusPlace[s]) != i {
			t.Errorf("statusPlace[%d] = %d, want %d", s, statusPlace[s], i)
		}
	}
	for i, m := range methodNames {
		if methodPlace(m) != i {
			t.Errorf("methodPlace(%s) = %d, want %d", m, methodPlace(m), i)
		}
	}
}

// If the server refuses a request because of a problem of its own, it logs the request id, but at
// most once per second.
func TestComplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		h := New(Options{Logger: slog.New(slog.NewTextHandler(&b, nil))})
		complain := func(n int) {
			for range n {
				c := call{h: h, r: httptest.NewRequest("POST", "/", nil), id: newRequestID()}
				c.complain(503, "storage_unavailable")
			}
		}
		complain(5)
		time.Sleep(2 * time.Second)
		complain(1)
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "request_id=req_") || !strings.Contains(lines[1], "unsaid=4") {
			t.Errorf("want two log entries, the second with unsaid=4; got:\n%s", b.String())
		}
	})
}

// BenchmarkCount measures the time that the counters add to an acknowledged publish.
func BenchmarkCount(b *testing.B) {
	h := New(Options{})
	c := call{h: h, r: httptest.NewRequest("POST", "/", nil), id: newRequestID(), route: route{kind: nextRoute}}
	b.RunParallel(func(pb *testing.PB) {
		c := c
		for pb.Next() {
			c.id[len(c.id)-1]++                                                  // the last byte of the id selects the shard of the counters
			c.status, c.received, c.written, c.window.At = 202, 1000, 100, 1<<62 // At is in the future, so that no request is slow
			c.count()
		}
	})
}

// If a client disconnects before the response, the request is counted with status 0, and nothing is
// logged.
func TestDisconnectStats(t *testing.T) {
	var b strings.Builder
	h := New(Options{Logger: slog.New(slog.NewTextHandler(&b, nil))})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := call{h: h, w: httptest.NewRecorder(), r: httptest.NewRequestWithContext(ctx, "POST", "/", nil), id: newRequestID(), route: route{kind: nextRoute}}
	c.refuse(ctx.Err())
	c.count()
	if got := h.Stats().Requests; !slices.Equal(got, []Requests{{"POST", "/v1/streams/{id}/publish", 0, 1}}) || b.Len() > 0 {
		t.Errorf("counted %+v, want one publish with status 0 and an empty log; the log is %s", got, b.String())
	}
}
