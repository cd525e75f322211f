package contract

import (
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

var batchCases = []Case{
	{"batch object", `spec: "json streams: 200 with the batch object": seq, ts, events`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[{"a":1}]`)
		b := t.Batch(s.ID, 1)
		t.same(b.Events, []byte(`[{"a":1}]`))
		if b.TS < s.CreatedAt {
			t.Errorf("stored at %s, before the stream was created at %s", b.TS, s.CreatedAt)
		}
		if again := t.Batch(s.ID, 1); again.TS != b.TS {
			t.Errorf("ts changed from %s to %s", b.TS, again.TS)
		}
	}},
	{"unknown sequence", `spec: "404 when the sequence was evicted or never existed"; D12: the message says which`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 1, `[]`)
		for _, seq := range []int64{0, 2, 1000, 1<<53 - 1} {
			a := t.Get(BatchPath(s.ID, seq)).Refused(404, "stream_not_found")
			if strings.Contains(a.message(), "evicted") {
				t.Errorf("batch %d never existed, but the message is %q", seq, a.message())
			}
		}
	}},
	{"sequences that are not numbers", `D30: getting a batch whose sequence is not a number gives 404 stream_not_found`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[]`)
		for _, seq := range []string{"x", "-1", "01", "+1", "1.0", "1e0", "head", "%00", "9007199254740992", "99999999999999999999", "1%20"} {
			t.Get("/v1/streams/"+s.ID+"/batches/"+seq).Refused(404, "stream_not_found")
		}
	}},
	{"batch of another stream", `spec: batches belong to their stream`, func(t *T) {
		a, b := t.jsonStream(), t.jsonStream()
		t.Publish(a.ID, `["a"]`)
		t.Get(BatchPath(b.ID, 1)).Refused(404, "stream_not_found")
	}},
	{"published with octet-stream", `spec: "raw-mode batch replay uses application/octet-stream"`, func(t *T) {
		s := t.rawStream()
		t.Post(NextPath(s.ID), RawBody([]byte("bytes"))).Want(202)
		a := t.Get(BatchPath(s.ID, 1)).Want(200)
		if got := a.Header.Get("Content-Type"); got != "application/octet-stream" || string(a.Body) != "bytes" {
			t.Errorf("got %q as %s", a.Body, got)
		}
	}},
}
