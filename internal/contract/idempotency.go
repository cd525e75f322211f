package contract

import (
	"fmt"
	"strings"
	"sync"
)

// Idempotent sends an Idempotency-Key header for each key.
func Idempotent(k ...string) Option { return WithHeader("Idempotency-Key", k...) }

// idempotencyCases check the header Idempotency-Key. In this file, a key is the value of this
// header, not an API key.
var idempotencyCases = []Case{
	{"repeated", `spec: "Not idempotent unless the request carries an Idempotency-Key header"; D25: a repeated key gives 200 with the first acknowledgement and duplicate: true; the body is not compared`, func(t *T) {
		s := t.jsonStream()
		if k := t.Publish(s.ID, `["a","b"]`, Idempotent("k1")); k != (Ack{s.ID, 1, 2, 1, false}) {
			t.Errorf("acknowledged as %+v, want sequence 1 with 2 events", k)
		}
		t.Publish(s.ID, `[]`)
		for _, text := range []string{`{"events":["a","b"]}`, `{"events":[1,2,3]}`, `not JSON`} {
			if k := t.Ack(t.Post(NextPath(s.ID), JSONBody(text), Idempotent("k1")).Want(200), s.ID); k != (Ack{s.ID, 1, 2, 2, true}) {
				t.Errorf("%s: got %+v", text, k)
			}
		}
		t.same(t.Batch(s.ID, 1).Events, []byte(`["a","b"]`))
		if c := t.Cursor(s.ID).Cursor; c != 2 {
			t.Errorf("cursor %d, want 2", c)
		}
	}},
	{"before the body", `D19: a request with a repeated key is answered before its body is read`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[]`, Idempotent("k"))
		t.Post(NextPath(s.ID), announced("application/json", 1000), Idempotent("k")).Want(200)
	}},
	{"without a key", `spec: "Not idempotent unless the request carries an Idempotency-Key header"`, func(t *T) {
		s := t.jsonStream()
		if a, b := t.Publish(s.ID, `["same"]`), t.Publish(s.ID, `["same"]`); a.Seq != 1 || b.Seq != 2 {
			t.Errorf("got %d and %d", a.Seq, b.Seq)
		}
	}},
	{"another key, another stream", `D25: keys that differ in case are different keys, and so are equal keys in different streams`, func(t *T) {
		a, b := t.jsonStream(), t.jsonStream()
		t.Publish(a.ID, `[]`, Idempotent("k"))
		t.Publish(a.ID, `[]`, Idempotent("K"))
		t.Publish(b.ID, `[]`, Idempotent("k"))
	}},
	{"two at once", `D25: if two requests with the same key arrive at once, one is stored, and both get its acknowledgement`, func(t *T) {
		s := t.jsonStream()
		var mu sync.Mutex
		stored := 0
		t.together(20, func(i int) {
			a := t.Post(NextPath(s.ID), JSONBody(fmt.Sprintf(`{"events":[%d]}`, i)), Idempotent("once"))
			mu.Lock()
			defer mu.Unlock()
			if k := t.Ack(a, s.ID); k.Seq != 1 || k.Accepted != 1 || k.Cursor != 1 {
				t.Errorf("acknowledged as %+v, want sequence 1 with 1 event and cursor 1", k)
			}
			if a.Status == 202 {
				stored++
			}
		})
		if c := t.Cursor(s.ID).Cursor; stored != 1 || c != 1 {
			t.Errorf("%d requests were stored and the cursor is %d, want 1 and 1", stored, c)
		}
	}},
	{"keys", `D25: a key has 1 to 255 visible ASCII characters; any other key gives 400`, func(t *T) {
		s := t.jsonStream()
		good := []string{"!", "~", strings.Repeat("k", 255), `"quoted"`, "a,b;c=d", "00000000-0000-0000-0000-000000000000"}
		for i, k := range good {
			if got := t.Publish(s.ID, `[]`, Idempotent(k)); got.Seq != int64(i+1) {
				t.Errorf("key %q: got %+v", k, got)
			}
		}
		for _, k := range []string{"", strings.Repeat("k", 256), "two words", "é", "\u2028", "tab\there"} {
			t.Post(NextPath(s.ID), JSONBody(`{"events":[]}`), Idempotent(k)).Refused(400, "invalid_request_error")
		}
		t.Post(NextPath(s.ID), JSONBody(`{"events":[]}`), Idempotent("one", "two")).Refused(400, "invalid_request_error")
		if c := t.Cursor(s.ID).Cursor; c != int64(len(good)) {
			t.Errorf("cursor is %d, want %d", c, len(good))
		}
	}},
	{"before size and body", `D19: the Idempotency-Key is checked with the content type, so before the declared size and the body`, func(t *T) {
		s := t.jsonStream()
		t.Post(NextPath(s.ID), announced("application/json", BodyLimit+1), Idempotent("two words")).Refused(400, "invalid_request_error")
	}},
	{"on a sequenced publish", `D25: a sequenced publish ignores the header`, func(t *T) {
		s := t.jsonStream()
		for seq := int64(1); seq <= 2; seq++ {
			t.Post(SeqPath(s.ID, seq), JSONBody(`{"events":[]}`), Idempotent("k")).Want(202)
		}
		t.Post(SeqPath(s.ID, 3), JSONBody(`{"events":[]}`), Idempotent("not a key")).Want(202)
		if k := t.Publish(s.ID, `[]`, Idempotent("k")); k.Seq != 4 {
			t.Errorf("the server remembered the key of a sequenced publish: %+v", k)
		}
	}},
	{"raw", `D25: the header works on raw streams too`, func(t *T) {
		s := t.rawStream()
		t.Post(NextPath(s.ID), RawBody([]byte("one")), Idempotent("k")).Want(202)
		if k := t.Ack(t.Post(NextPath(s.ID), RawBody([]byte("two")), Idempotent("k")).Want(200), s.ID); k.Seq != 1 || k.Accepted != 1 {
			t.Errorf("acknowledged as %+v, want sequence 1 with 1 event", k)
		}
	}},
	{"refused with a key", `D25: the server remembers a key only with a stored batch: after a refused publish, the key can be used again`, func(t *T) {
		s := t.jsonStream()
		t.Post(NextPath(s.ID), JSONBody(`broken`), Idempotent("k")).Refused(400, "invalid_request_error")
		t.Publish(s.ID, `[]`, Idempotent("k"))
	}},
	{"evicted", `D25: a key is remembered for 24 h, whether or not its batch is still kept; repeating the key returns the first acknowledgement`, func(t *T) {
		s := t.create(`"max_bytes":1048576`)
		t.Publish(s.ID, `["a","b","c"]`, Idempotent("k"))
		t.Publish(s.ID, `["`+strings.Repeat("x", MiB-4)+`"]`)
		t.evicted(s.ID, 1)
		for _, text := range []string{`{"events":["again"]}`, `not JSON`} {
			if k := t.Ack(t.Post(NextPath(s.ID), JSONBody(text), Idempotent("k")).Want(200), s.ID); k != (Ack{s.ID, 1, 3, 2, true}) {
				t.Errorf("%s: got %+v", text, k)
			}
		}
	}},
}
