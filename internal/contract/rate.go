package contract

import (
	"strconv"
	"sync"
	"time"
)

// window holds the rate-limit header fields of a response.
type window struct{ limit, remaining, reset int64 }

func (a *Answer) window() window {
	n := func(name string) int64 { v, _ := strconv.ParseInt(a.Header.Get(name), 10, 64); return v }
	return window{n("X-Ratelimit-Limit"), n("X-Ratelimit-Remaining"), n("X-Ratelimit-Reset")}
}

// unlimited is the value of the header field x-ratelimit-limit if requests are not limited (D23).
const unlimited = 2147483647

// countsExactly skips the case if requests are spread over the nodes of a cluster. Cases that need
// exact request counts call it. A node counts its own requests at once, but learns of requests to
// other nodes a moment later.
func (t *T) countsExactly() {
	t.Helper()
	if t.Spread {
		t.Skip("requests are spread over nodes, whose counts agree only after a moment")
	}
}

var rateCases = []Case{
	{"test keys have lower limits", `spec: "Test keys: lower rate limits than live keys"`, func(t *T) {
		live, test := t.Get("/v1/streams?limit=1").window(), t.Get("/v1/streams?limit=1", WithKey(t.Test)).window()
		if test.limit >= live.limit {
			t.Errorf("the limit of a test key is %d, want less than the %d of a live key", test.limit, live.limit)
		}
	}},
	{"counted per key", `D23: each key has its own rate-limit window of 60 s; every request of the key counts, and a subscription counts as one request`, func(t *T) {
		t.countsExactly()
		k, _ := t.newKey(Key{Kind: "test"})
		s := t.jsonStream()
		var last window
		step := func(what string, w window) {
			t.Helper()
			if w.limit == unlimited {
				t.Skip("this target does not limit test keys")
			}
			if last.reset == w.reset && w.remaining != last.remaining-1 {
				t.Errorf("%s: remaining went from %d to %d, want one less", what, last.remaining, w.remaining)
			}
			if last.reset != w.reset && w.remaining != w.limit-1 {
				t.Errorf("%s: the first request of a window left %d of %d requests, want all but one", what, w.remaining, w.limit)
			}
			last = w
		}
		step("get", t.Get("/v1/streams/"+s.ID, WithKey(k)).window())
		step("publish", t.Post(NextPath(s.ID), JSONBody(`{"events":[]}`), WithKey(k)).window())
		step("subscribe", t.Get("/v1/streams/"+s.ID+"?cursor=x", WithHeader("Accept", "text/event-stream"), WithKey(k)).window())
		step("not found", t.Get("/v1/nowhere", WithKey(k)).window())
		step("not allowed", t.do("PUT", "/v1/streams", WithKey(k)).window())
		t.Subscribe(s.ID, "cursor=0", WithKey(k)).Batch(1)
		last.remaining--
		step("after a subscription", t.Get("/v1/streams/"+s.ID, WithKey(k)).window())
	}},
	{"exact under concurrency", `D23: a window counts every request, also concurrent ones`, func(t *T) {
		t.countsExactly()
		k, _ := t.newKey(Key{Kind: "test"})
		var mu sync.Mutex
		seen := map[window]bool{}
		t.together(30, func(int) {
			w := t.Get("/v1/streams?limit=1", WithKey(k)).window()
			mu.Lock()
			defer mu.Unlock()
			if seen[w] && w.limit != unlimited {
				t.Errorf("two requests have %d of %d remaining", w.remaining, w.limit)
			}
			seen[w] = true
		})
	}},
	{"reset", `spec: x-ratelimit-reset "Unix time at which the window resets"; D23: windows of 60 s`, func(t *T) {
		before := time.Now().Unix()
		reset := t.Get("/v1/streams?limit=1").window().reset
		if now := time.Now().Unix(); reset < before || reset > now+60 {
			t.Errorf("the window resets at %d, but the time is %d to %d", reset, before, now)
		}
	}},
}
