package contract

import (
	"strconv"
	"time"
)

// limitCases run one at a time on a service with small limits. Every request counts towards limits
// that all cases share, so each case must leave enough for the cases after it.
var limitCases = []Case{
	{"heartbeat", `D16: a subscription that is idle for the heartbeat interval (a setting, 15 s by default) gets a comment`, func(t *T) {
		if t.Limits.Heartbeat == 0 || t.Limits.Heartbeat > 5*time.Second {
			t.Skip("this target has no short heartbeat")
		}
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "")
		for range 3 {
			if e := sub.nextBlock(); !e.Comment {
				t.Errorf("got %+v, want a comment", e)
			}
		}
		t.Publish(s.ID, `[1]`)
		sub.Batch(1)
	}},
	{"streams of a project", `spec: "403 stream_limit_reached"; D24; D31: deleting a stream makes room for another`, func(t *T) {
		n := t.Limits.StreamsPerProject
		if n == 0 || n > 100 {
			t.Skip("this target has no small limit of streams")
		}
		var made []Stream
		for range n {
			made = append(made, t.jsonStream())
		}
		t.Post("/v1/streams", JSONBody(`{"name":"one too many"}`)).Refused(403, "stream_limit_reached")
		t.Post("/v1/streams", JSONBody(`{"name":"taken","id":"`+made[0].ID+`"}`)).Refused(409, "stream_name_taken") // D10: 409 has priority over 403
		t.Post("/v1/streams", JSONBody(`{"name":"bad","retention_seconds":1}`)).Refused(422, "retention_out_of_range")
		t.CreateBody(`{"name":"of another project"}`, WithKey(t.OtherLive))
		t.Delete("/v1/streams/" + made[0].ID).Want(204)
		statuses := make(chan int, 8)
		t.together(8, func(int) { statuses <- t.Post("/v1/streams", JSONBody(`{"name":"race"}`)).Status })
		close(statuses)
		created := 0
		for status := range statuses {
			if status == 201 {
				created++
			}
		}
		if created != 1 {
			t.Errorf("%d of 8 creates succeeded, want one", created)
		}
		for _, s := range t.page("?limit=100").Data {
			t.remove(s.ID)
		}
		for _, s := range t.page("?limit=100", WithKey(t.OtherLive)).Data {
			t.Delete("/v1/streams/"+s.ID, WithKey(t.OtherLive))
		}
	}},
	{"open subscriptions", `D34: the node has a limited number of places for subscriptions; while more than a quarter of them is free, any key may take one; after that, a key that holds many places gets 429 rate_limited with retry-after; D26: when no place is left, the response is 503 overloaded`, func(t *T) {
		n := t.Limits.Subscribers
		if n < 4 || n > 50 {
			t.Skip("this target has no small limit of subscriptions")
		}
		s, theirs := t.jsonStream(), t.CreateBody(`{"name":"of another project"}`, WithKey(t.OtherLive))
		defer t.Delete("/v1/streams/"+theirs.ID, WithKey(t.OtherLive))
		var subs []*Subscription
		take := func(id string, o ...Option) func() bool {
			return func() bool {
				resp, cancel := t.Open("/v1/streams/"+id, o...)
				if resp.StatusCode == 200 {
					subs = append(subs, t.follow("the stream", resp, cancel))
					return true
				}
				cancel()
				resp.Body.Close()
				return false
			}
		}
		for range n - n/4 { // this may take some time, because subscriptions of earlier cases may still be closing
			Eventually(t, Patience, "a subscription is accepted", take(s.ID))
		}
		t.refusedPlace(s.ID, 429, "rate_limited")
		last := 0
		for take(theirs.ID, WithKey(t.OtherLive))() {
			last++
		}
		if last == 0 {
			t.Error("a key without subscriptions got none of the places in the last quarter")
		}
		if n-n/4+last == n {
			t.refusedPlace(s.ID, 503, "overloaded")
		}
		subs[0].cancel()
		Eventually(t, Patience, "a subscription is accepted after one was closed", take(theirs.ID, WithKey(t.OtherLive)))
		t.Publish(s.ID, `[1]`) // a publish needs no place
		subs[1].Batch(1)
	}},
	{"test key", `spec: "Exceeding the limit gives 429 rate_limited with retry-after in seconds"; D23: each key has its own limit`, func(t *T) {
		limit := int64(t.Limits.Test)
		if limit == 0 || limit > 200 {
			t.Skip("this target has no small limit for test keys")
		}
		refused := t.exhaust(limit, func(int64) *Answer { return t.Get("/v1/streams?limit=1", WithKey(t.Test)) })
		t.checkLimited(refused)
		t.checkLimited(t.Get("/v1/streams/short", WithKey(t.Test))) // D19: the rate limit comes before the stream's id
		t.checkLimited(t.Get("/v1/nowhere", WithKey(t.Test)))
		t.checkLimited(t.do("PUT", "/v1/streams", WithKey(t.Test)))
		t.Get("/v1/streams?limit=1").Want(200)
		t.Get("/v1/health", WithKey(t.Test)).Want(200) // health needs no key, so the key's window does not apply to it
	}},
	{"no key", `D23: requests without a valid key count per client address, including health, version and every 401; D19: when the window of an address is used up, the response is 429, not 401`, func(t *T) {
		limit := int64(t.Limits.Anonymous)
		if limit == 0 || limit > 200 {
			t.Skip("this target has no small limit for requests without a key")
		}
		before := t.Get("/v1/health", WithKey("")).window()
		for range 5 {
			t.do("OPTIONS", "/v1/streams", WithKey(""), WithHeader("Origin", "https://page.example"), WithHeader("Access-Control-Request-Method", "GET"))
		}
		if after := t.Get("/v1/health", WithKey("")).window(); after.reset == before.reset && after.remaining != before.remaining-1 {
			t.Errorf("preflights were counted: remaining went from %d to %d", before.remaining, after.remaining)
		}
		refused := t.exhaust(limit, func(i int64) *Answer {
			o := [][]Option{{WithKey("")}, {WithKey(unknownKey)}, {WithKey("svc_live_x")}, {WithHeader("X-Forwarded-For", strconv.FormatInt(i, 10)+".2.3.4"), WithKey("")}}[i%4]
			return t.Get([]string{"/v1/health", "/v1/streams", "/v1/nowhere"}[i%3], o...)
		})
		t.checkLimited(refused)
		for _, k := range []string{"", unknownKey, "svc_live_x"} {
			t.checkLimited(t.Get("/v1/streams", WithKey(k)))
		}
		t.checkLimited(t.Get("/v1/health", WithKey("")))
		t.Get("/v1/streams?limit=1").Want(200)
		t.do("OPTIONS", "/v1/streams", WithKey(""), WithHeader("Origin", "https://page.example"), WithHeader("Access-Control-Request-Method", "GET")).Want(204)
	}},
}

// refusedPlace checks that the service refuses one more subscription, with this status and code.
func (t *T) refusedPlace(id string, status int, code string) {
	t.Helper()
	resp, cancel := t.Open("/v1/streams/" + id)
	defer cancel()
	defer resp.Body.Close()
	a := &Answer{t: t, request: "one subscription too many", Status: resp.StatusCode, Header: resp.Header, Body: ReadAll(resp)}
	for _, fault := range append(headers(resp.Header, time.Now()), t.errorFaults(a)...) {
		t.Errorf("one subscription too many: %s", fault)
	}
	if a.Refused(status, code); resp.Header.Get("Retry-After") == "" {
		t.Error("one subscription too many: no retry-after")
	}
}
