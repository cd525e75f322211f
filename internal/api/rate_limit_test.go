package api_test

import (
	"strconv"
	"testing"
)

// TestRateLimits covers D23. Every response shows the limit and the remaining requests of its rate
// window, and a 429 has retry-after. A client without a valid key gets 429, not 401, once its
// address has reached its limit.
func TestRateLimits(t *testing.T) {
	svc := startService(t, "--rate-live", "3", "--rate-test", "2", "--rate-demo", "2", "--rate-anonymous", "4")
	get := func(path string, header ...string) string {
		t.Helper()
		a := svc.do("HTTP/1.1", svc.request("GET", path, header, ""))
		return strconv.Itoa(a.status) + " " + svc.code(path, a) + " " + a.header.Get("x-ratelimit-limit") + "/" + a.header.Get("x-ratelimit-remaining")
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
		a := svc.do("h2c", svc.request("OPTIONS", "/v1/streams", []string{noKey}, "")) // OPTIONS is not counted
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
