package api_test

import (
	"io"
	"maps"
	"runtime"
	"slices"
	"testing"

	"weir/internal/api"
)

// awaitCounted waits until the server has counted n requests. The server counts a request a moment
// after the client has received the response.
func (svc *testService) awaitCounted(n uint64) api.Stats {
	svc.t.Helper()
	for {
		s := svc.API.Stats()
		sum := uint64(0)
		for _, r := range s.Requests {
			sum += r.Count
		}
		if sum == n {
			return s
		}
		if sum > n {
			svc.t.Fatalf("%d requests are counted, want %d: %+v", sum, n, s.Requests)
		}
		runtime.Gosched()
	}
}

func TestStats(t *testing.T) {
	svc := startService(t, "--rate-anonymous", "3")
	path := "/v1/streams/" + svc.ids["id"]
	live := "Authorization: Bearer " + svc.keys["live"]
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
		{"GET", "/v1/nothing/" + svc.keys["live"], []string{live}, "", 404},
		{"GET", "/elsewhere", []string{"key: "}, "", 404},
		{"GET", path, []string{"key: "}, "", 401},
		{"GET", "/v1/health", []string{"key: "}, "", 200},
		{"GET", "/v1/health", []string{"key: "}, "", 200},
		{"GET", "/v1/health", []string{"key: "}, "", 429},
		{"OPTIONS", path, nil, "", 204},
	} {
		if got := svc.do("HTTP/1.1", svc.request(r.method, r.path, r.header, r.body)); got.status != r.status {
			t.Fatalf("%s %s: %d, want %d", r.method, r.path, got.status, r.status)
		}
	}
	s := svc.awaitCounted(14)
	want := []api.Requests{
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
		t.Errorf("the latency of %d publishes was measured, want the 3 acknowledged ones", n)
	}
	if got := uint64(2*len(body) + 1); s.Received != got { // two accepted bodies and the invalid body "{"; the server does not read the body of a duplicate
		t.Errorf("received %d bytes, want %d", s.Received, got)
	}
	if s.Sent < 500 {
		t.Errorf("sent %d bytes in 14 responses, want at least 500", s.Sent)
	}
	if limited := map[string]uint64{"live": 0, "test": 0, "demo": 0, "anonymous": 1}; !maps.Equal(s.Limited, limited) {
		t.Errorf("the counts of rate-limited requests are %v, want %v", s.Limited, limited)
	}
}

// The server counts open subscriptions, and counts ended subscriptions by the reason why they
// ended.
func TestSubscriptionStats(t *testing.T) {
	svc := startService(t)
	path := "/v1/streams/" + svc.ids["id"]
	live := "Authorization: Bearer " + svc.keys["live"]
	one, two := svc.follow("HTTP/1.1", path, live), svc.follow("h2c", path, live)
	if s := svc.API.Stats(); s.Subscribers != 2 || s.Subscriptions != 2 {
		t.Errorf("with two open subscriptions, the counts are %+v", s)
	}
	one.resp.Body.Close()
	for svc.API.Stats().Ended["client"] != 1 { // wait until the server has noticed the disconnect
		runtime.Gosched()
	}
	if got := svc.do("HTTP/1.1", svc.request("DELETE", path, []string{live}, "")); got.status != 204 {
		t.Fatal(got.status)
	}
	io.Copy(io.Discard, two.resp.Body)
	s := svc.awaitCounted(3)
	want := map[string]uint64{"client": 1, "slow": 0, "stream_deleted": 1, "stream_closed": 0, "key_revoked": 0, "stopping": 0, "failed": 0, "reconnect": 0, "operator": 0}
	if !maps.Equal(s.Ended, want) || s.Subscribers != 0 {
		t.Errorf("ended subscriptions are %v with %d open, want %v with none open", s.Ended, s.Subscribers, want)
	}
}
