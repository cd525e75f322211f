package contract

import (
	"net/http"
	"slices"
	"strings"
)

// patch sends a PATCH request for a stream.
func patch(t *T, id string, options ...Option) *Answer {
	t.Helper()
	return t.do(http.MethodPatch, "/v1/streams/"+id, options...)
}

// changed changes a stream and checks the object in the response.
func changed(t *T, id, body string) Stream {
	t.Helper()
	var s Stream
	patch(t, id, JSONBody(body)).Want(200).decode(&s)
	t.checkStream(s)
	return s
}

var changeCases = []Case{
	{"settings", `D37: PATCH changes name, retention_seconds and max_bytes: 200 with the stream object`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		want := t.Stream(s.ID)
		for _, c := range []struct {
			body string
			set  func()
		}{
			{`{"name":"new name"}`, func() { want.Name = "new name" }},
			{`{"retention_seconds":60}`, func() { want.RetentionSeconds = 60 }},
			{`{"max_bytes":1048576}`, func() { want.MaxBytes = 1 << 20 }},
			{`{"name":"ü","retention_seconds":2592000,"max_bytes":4294967296}`, func() { want.Name, want.RetentionSeconds, want.MaxBytes = "ü", 2592000, 4<<30 }},
		} {
			c.set()
			if got := changed(t, s.ID, c.body); got != want {
				t.Errorf("%s: got %+v, want %+v", c.body, got, want)
			}
			if t.Spread { // another node may learn of the change a moment later
				Eventually(t, Patience, "a node shows the change", func() bool { return t.Stream(s.ID) == want })
			} else if got := t.Stream(s.ID); got != want {
				t.Errorf("%s: afterwards %+v, want %+v", c.body, got, want)
			}
		}
	}},
	{"nothing", `D37: other members are ignored, and an empty object changes nothing`, func(t *T) {
		s := t.jsonStream()
		for _, body := range []string{`{}`, `{"mode":"raw","id":"x","cursor":7,"created_at":null,"more":{}}`, ` { } `} {
			if got := changed(t, s.ID, body); got != s {
				t.Errorf("%s: got %+v, want %+v", body, got, s)
			}
		}
	}},
	{"smaller limits", `D37: smaller limits evict batches at once`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":8388608`)
		for range 6 {
			t.Post(NextPath(s.ID), RawBody(Filler(part))).Want(202)
		}
		sub := t.Subscribe(s.ID, "", WithHeader("Last-Event-ID", "1"))
		for seq := int64(2); seq <= 6; seq++ {
			sub.raw(seq)
		}
		got := changed(t, s.ID, `{"max_bytes":1048576}`)
		if got.BytesStored != 3*part || got.Cursor != 6 {
			t.Errorf("got %+v, want %d bytes", got, 3*part)
		}
		t.evicted(s.ID, 3)
		late := t.Subscribe(s.ID, "", WithHeader("Last-Event-ID", "1"))
		late.gap(2, 3)
		late.raw(4)
		changed(t, s.ID, `{"max_bytes":8388608}`)
		t.evicted(s.ID, 3)
		if p := t.Page(s.ID, "from=4"); !slices.Equal(p.seqs(t), []int64{4, 5, 6}) {
			t.Errorf("kept %v, want 4 to 6", p.seqs(t))
		}
		t.Post(NextPath(s.ID), RawBody(Filler(part))).Want(202)
		sub.raw(7)
	}},
	{"bodies", `D37: a change has the rules and errors of create (D10)`, func(t *T) {
		s := t.jsonStream()
		for _, body := range []string{``, `[]`, `null`, `{`, `{}{}`, `{"name":""}`, `{"name":null}`, `{"name":1}`, `{"name":"` + strings.Repeat("x", 129) + `"}`,
			`{"name":"a","name":"b"}`, `{"retention_seconds":"60"}`, `{"retention_seconds":60.0}`, `{"retention_seconds":null}`, `{"max_bytes":1048575}`,
			`{"max_bytes":4294967297}`, `{"max_bytes":1e9}`, `{"max_bytes":null}`, `{"retention_seconds":1,"max_bytes":1}`} {
			patch(t, s.ID, JSONBody(body)).Refused(400, "invalid_request_error")
		}
		for _, n := range []string{"59", "2592001", "0", "-1", "99999999999999999999"} {
			patch(t, s.ID, JSONBody(`{"name":"x","retention_seconds":`+n+`}`)).Refused(422, "retention_out_of_range")
		}
		patch(t, s.ID, RawBody([]byte(`{}`))).Refused(415, "unsupported_media_type")
		patch(t, s.ID).Refused(415, "unsupported_media_type")
		patch(t, s.ID, JSONBody(`{"x":"`+strings.Repeat("x", 64<<10)+`"}`)).Refused(413, "payload_too_large")
		if got := t.Stream(s.ID); got != s {
			t.Errorf("refused requests changed the stream to %+v", got)
		}
	}},
	{"who may change", `D37: a change needs the permission manage; D19: the stream is checked before the body; D22: no key can change the demo stream`, func(t *T) {
		s := t.jsonStream()
		bad := JSONBody(`[]`)
		patch(t, s.ID, bad, WithKey("")).Refused(401, "missing_api_key")
		patch(t, s.ID, bad, WithKey(t.OtherLive)).Refused(403, forbidden)
		patch(t, "short", bad).Refused(400, "invalid_stream_id")
		patch(t, NewID(), bad).Refused(404, "stream_not_found")
		if t.Demo {
			patch(t, DemoStream, JSONBody(`{"name":"x"}`)).Refused(403, forbidden)
		}
		k, _ := t.newKey(Key{Kind: "live", Permissions: []string{"read", "publish"}})
		patch(t, s.ID, bad, WithKey(k)).Refused(403, forbidden)
		k, _ = t.newKey(Key{Kind: "live", Permissions: []string{"manage"}})
		patch(t, s.ID, JSONBody(`{"name":"x"}`), WithKey(k)).Want(200)
	}},
}
