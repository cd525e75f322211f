package api

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/access"
)

// Every status that the API can send is counted separately, and both lookup tables agree with their
// lists.
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

// counted waits until n requests are counted. A client has its response a moment before the server
// counts the request.
func (h *house) counted(n uint64) Stats {
	h.t.Helper()
	for {
		s := h.api.Stats()
		sum := uint64(0)
		for _, r := range s.Requests {
			sum += r.Count
		}
		if sum == n {
			return s
		}
		if sum > n {
			h.t.Fatalf("%d requests are counted, want %d: %+v", sum, n, s.Requests)
		}
		runtime.Gosched()
	}
}

func TestStats(t *testing.T) {
	h := newHouse(t, furnish{limits: &access.Limits{Anonymous: 3, Demo: 1000}})
	path := "/v1/streams/" + h.ids["id"]
	live := "Authorization: Bearer " + h.keys["live"]
	body := `{"events":[1]}`
	publish := []string{live, "Content-Type: application/json"}
	for _, r := range []struct {
		method, path string
		header       []string
		body         string
		status       int
	}{
		{"POST", path + "/1", publish, body, 202},
		{"POST", path + "/1", publish, body, 200},
		{"POST", path + "/publish", publish, body, 202},
		{"POST", path + "/publish", publish, "{", 400},
		{"GET", path + "/cursor", []string{live}, "", 200},
		{"HEAD", path + "/cursor", []string{live}, "", 200},
		{"BREW", path, []string{live}, "", 405},
		{"GET", "/v1/nothing/" + h.keys["live"], []string{live}, "", 404},
		{"GET", "/elsewhere", []string{"key: "}, "", 404},
		{"GET", path, []string{"key: "}, "", 401},
		{"GET", "/v1/health", []string{"key: "}, "", 200},
		{"GET", "/v1/health", []string{"key: "}, "", 200},
		{"GET", "/v1/health", []string{"key: "}, "", 429},
		{"OPTIONS", path, nil, "", 204},
	} {
		if got := h.do("HTTP/1.1", h.request(r.method, r.path, r.header, r.body)); got.status != r.status {
			t.Fatalf("%s %s: %d, want %d", r.method, r.path, got.status, r.status)
		}
	}
	s := h.counted(14)
	want := []Requests{
		{"other", "/v1/streams/{id}", 405, 1},
		{"GET", "other", 404, 2},
		{"GET", "/v1/health", 200, 2},
		{"GET", "/v1/health", 429, 1},
		{"GET", "/v1/streams/{id}", 401, 1},
		{"GET", "/v1/streams/{id}/cursor", 200, 1},
		{"HEAD", "/v1/streams/{id}/cursor", 200, 1},
		{"POST", "/v1/streams/{id}/publish", 202, 1},
		{"POST", "/v1/streams/{id}/publish", 400, 1},
		{"POST", "/v1/streams/{id}/{seq}", 200, 1},
		{"POST", "/v1/streams/{id}/{seq}", 202, 1},
		{"OPTIONS", "/v1/streams/{id}", 204, 1},
	}
	if !slices.Equal(s.Requests, want) {
		t.Errorf("got  %+v\nwant %+v", s.Requests, want)
	}
	if n := s.Publishes.Count(); n != 3 {
		t.Errorf("%d publishes are timed, want the 3 that were acknowledged", n)
	}
	if got := uint64(2*len(body) + 1); s.Received != got { // the body of a duplicate is not read
		t.Errorf("received %d bytes, want %d", s.Received, got)
	}
	if s.Sent < 500 {
		t.Errorf("sent %d bytes in 14 responses, want at least 500", s.Sent)
	}
	if limited := map[string]uint64{"live": 0, "test": 0, "demo": 0, "anonymous": 1}; !maps.Equal(s.Limited, limited) {
		t.Errorf("limited: %v, want %v", s.Limited, limited)
	}
}

// An open subscription is counted, and so is the reason why it ended.
func TestSubscriptionStats(t *testing.T) {
	h := newHouse(t, furnish{})
	path := "/v1/streams/" + h.ids["id"]
	live := "Authorization: Bearer " + h.keys["live"]
	one, two := h.follow("HTTP/1.1", path, live), h.follow("h2c", path, live)
	if s := h.api.Stats(); s.Subscribers != 2 || s.Subscriptions != 2 {
		t.Errorf("two subscriptions: %+v", s)
	}
	one.resp.Body.Close()
	for h.api.Stats().Ended["client"] != 1 { // until the server has noticed
		runtime.Gosched()
	}
	if got := h.do("HTTP/1.1", h.request("DELETE", path, []string{live}, "")); got.status != 204 {
		t.Fatal(got.status)
	}
	io.Copy(io.Discard, two.resp.Body)
	s := h.counted(3)
	want := map[string]uint64{"client": 1, "slow": 0, "stream_deleted": 1, "key_revoked": 0, "stopping": 0, "failed": 0}
	if !maps.Equal(s.Ended, want) || s.Subscribers != 0 {
		t.Errorf("got %v with %d open, want %v", s.Ended, s.Subscribers, want)
	}
}

// Refusals for problems of the server are logged with their request id, but at most once per
// second.
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
			t.Errorf("got:\n%s", b.String())
		}
	})
}

// BenchmarkCount measures what counting adds to an acknowledged publish.
func BenchmarkCount(b *testing.B) {
	h := New(Options{})
	c := call{h: h, r: httptest.NewRequest("POST", "/", nil), id: newRequestID(), route: route{kind: nextRoute}}
	b.RunParallel(func(pb *testing.PB) {
		c := c
		for pb.Next() {
			c.id[len(c.id)-1]++ // another shard
			c.status, c.received, c.written, c.window.At = 202, 1000, 100, 1
			c.count()
		}
	})
}

// A client that disconnects before the response is counted with status 0, and nothing is logged.
func TestDisconnectStats(t *testing.T) {
	var b strings.Builder
	h := New(Options{Logger: slog.New(slog.NewTextHandler(&b, nil))})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := call{h: h, w: &null{header: http.Header{}}, r: httptest.NewRequestWithContext(ctx, "POST", "/", nil), id: newRequestID(), route: route{kind: nextRoute}}
	c.refuse(ctx.Err())
	c.count()
	if got := h.Stats().Requests; !slices.Equal(got, []Requests{{"POST", "/v1/streams/{id}/publish", 0, 1}}) || b.Len() > 0 {
		t.Errorf("got %+v, log: %s", got, b.String())
	}
}
