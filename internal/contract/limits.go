package contract

import (
	"strconv"
	"time"
)

// limitCases run one after the other on a service with small limits. Requests count: each case knows what it uses up.
var limitCases = []Case{
	{"heartbeat", `D16: "While nothing is sent for 15 s: a comment line as heartbeat" (a setting)`, func(t *T) {
		if t.Limits.Heartbeat == 0 || t.Limits.Heartbeat > 5*time.Second {
			t.Skip("no short heartbeat on this target")
		}
		s := t.jsonStream()
		sub := t.subscribe(s.ID, "")
		for range 3 {
			if e := sub.any(); !e.Comment {
				t.Errorf("got %+v, want a comment", e)
			}
		}
		t.publish(s.ID, `[1]`)
		sub.batch(1)
	}},
	{"streams of a project", `spec: "403 stream_limit_reached"; D24; D31: deleting makes "the project's stream count go down"`, func(t *T) {
		n := t.Limits.StreamsPerProject
		if n == 0 || n > 100 {
			t.Skip("no small number of streams on this target")
		}
		var made []Stream
		for range n {
			made = append(made, t.jsonStream())
		}
		t.post("/v1/streams", jsonBody(`{"name":"one too many"}`)).refused(403, "stream_limit_reached")
		t.post("/v1/streams", jsonBody(`{"name":"taken","id":"`+made[0].ID+`"}`)).refused(409, "stream_name_taken") // D10: 409 before 403
		t.post("/v1/streams", jsonBody(`{"name":"bad","retention_seconds":1}`)).refused(422, "retention_out_of_range")
		t.createBody(`{"name":"of another project"}`, key(t.OtherLive))
		t.delete("/v1/streams/" + made[0].ID).want(204)
		statuses := make(chan int, 8)
		t.together(8, func(int) { statuses <- t.post("/v1/streams", jsonBody(`{"name":"race"}`)).Status })
		close(statuses)
		created := 0
		for status := range statuses {
			if status == 201 {
				created++
			}
		}
		if created != 1 {
			t.Errorf("%d of 8 took the one place that was left", created)
		}
		for _, s := range t.page("?limit=100").Data {
			t.remove(s.ID)
		}
		for _, s := range t.page("?limit=100", key(t.OtherLive)).Data {
			t.delete("/v1/streams/"+s.ID, key(t.OtherLive))
		}
	}},
	{"open subscriptions", `D26: "overloaded (503, with retry-after: a cap of this node, such as open subscriptions, is reached)"`, func(t *T) {
		n := t.Limits.Subscribers
		if n == 0 || n > 50 {
			t.Skip("no small number of subscriptions on this target")
		}
		s := t.jsonStream()
		var subs []*Subscription
		take := func() bool {
			resp, cancel := t.open("/v1/streams/" + s.ID)
			if resp.StatusCode == 200 {
				subs = append(subs, t.follow("the stream", resp, cancel))
				return true
			}
			cancel()
			resp.Body.Close()
			return false
		}
		for range n { // those of other cases may not be quite over
			t.eventually(patience, "there is a place", take)
		}
		t.overloaded(s.ID)
		subs[0].cancel()
		t.eventually(patience, "a place is free again", take)
		t.publish(s.ID, `[1]`) // nobody else is hurt
		subs[1].batch(1)
	}},
	{"test key", `spec: "Exceeding the limit gives 429 rate_limited with retry-after in seconds"; D23: per key`, func(t *T) {
		limit := int64(t.Limits.Test)
		if limit == 0 || limit > 200 {
			t.Skip("no small limit for test keys on this target")
		}
		refused := t.exhaust(limit, func(int64) *Answer { return t.get("/v1/streams?limit=1", key(t.Test)) })
		t.checkLimited(refused)
		t.checkLimited(t.get("/v1/streams/short", key(t.Test))) // D19: the rate limit before the stream's id
		t.checkLimited(t.get("/v1/nowhere", key(t.Test)))
		t.checkLimited(t.do("PUT", "/v1/streams", key(t.Test)))
		t.get("/v1/streams?limit=1").want(200)
		t.get("/v1/health", key(t.Test)).want(200) // needs no key, so the key's window does not matter
	}},
	{"no key", `D23: "per client IP: requests without a valid key (health, version and everything refused with 401 included)"; D19: "Where the anonymous window is used up, 429 comes before 401"`, func(t *T) {
		limit := int64(t.Limits.Anonymous)
		if limit == 0 || limit > 200 {
			t.Skip("no small limit without a key on this target")
		}
		before := t.get("/v1/health", key("")).window()
		for range 5 {
			t.do("OPTIONS", "/v1/streams", key(""), header("Origin", "https://page.example"), header("Access-Control-Request-Method", "GET"))
		}
		if after := t.get("/v1/health", key("")).window(); after.reset == before.reset && after.remaining != before.remaining-1 {
			t.Errorf("a preflight was counted: %d remained, then %d", before.remaining, after.remaining)
		}
		refused := t.exhaust(limit, func(i int64) *Answer {
			o := [][]option{{key("")}, {key(unknownKey)}, {key("svc_live_x")}, {header("X-Forwarded-For", strconv.FormatInt(i, 10)+".2.3.4"), key("")}}[i%4]
			return t.get([]string{"/v1/health", "/v1/streams", "/v1/nowhere"}[i%3], o...)
		})
		t.checkLimited(refused)
		for _, k := range []string{"", unknownKey, "svc_live_x"} {
			t.checkLimited(t.get("/v1/streams", key(k)))
		}
		t.checkLimited(t.get("/v1/health", key("")))
		t.get("/v1/streams?limit=1").want(200)
		t.do("OPTIONS", "/v1/streams", key(""), header("Origin", "https://page.example"), header("Access-Control-Request-Method", "GET")).want(204)
	}},
}

// overloaded wants a subscription refused because there are too many.
func (t *T) overloaded(id string) {
	t.Helper()
	resp, cancel := t.open("/v1/streams/" + id)
	defer cancel()
	defer resp.Body.Close()
	a := &Answer{t: t, request: "one subscription too many", Status: resp.StatusCode, Header: resp.Header, Body: readAll(resp)}
	for _, fault := range append(headers(resp.Header, time.Now()), t.errorFaults(a)...) {
		t.Errorf("one subscription too many: %s", fault)
	}
	a.refused(503, "overloaded")
}
