package contract

import "time"

var lifetimeCases = []Case{
	{"the time to live", `D37: ttl_seconds is an integer from 1 to 31536000, otherwise 400; the stream object shows it if it is set`, func(t *T) {
		for _, bad := range []string{"0", "-1", "31536001", "1.5", `"60"`, "null", "1e2"} {
			t.Post("/v1/streams", JSONBody(`{"name":"x","ttl_seconds":`+bad+`}`)).Refused(400, "invalid_request_error")
		}
		s := t.create(`"ttl_seconds":31536000`)
		if got := t.Stream(s.ID); s.TTLSeconds != 31536000 || got != s {
			t.Errorf("created %+v, got %+v", s, got)
		}
	}},
	{"expired", `D37: a stream that was not used for its time to live is deleted, and its subscribers get end with the reason expired; reading the stream object does not count as a use`, func(t *T) {
		s := t.create(`"ttl_seconds":2`)
		t.Publish(s.ID, `[1]`)
		sub := t.Subscribe(s.ID, "cursor=0")
		sub.Batch(1)
		for deadline := time.Now().Add(Patience); t.Get("/v1/streams/"+s.ID).Status != 404; {
			if time.Now().After(deadline) {
				t.Fatalf("the stream has not expired")
			}
		}
		sub.endsWith("expired")
		t.eachOfStream(s.ID, func(a *Answer) { a.Refused(404, "stream_not_found") })
		t.CreateBody(`{"name":"again","id":"` + s.ID + `"}`)
	}},
}
