package contract

import (
	"strings"
)

var sizeCases = []Case{
	{"raw limit", `spec: "Maximum body 8 MiB"; D9: 8,388,608 bytes of HTTP body, inclusive, with or without Content-Length`, func(t *T) {
		s := t.rawStream()
		full := Filler(BodyLimit)
		t.Post(NextPath(s.ID), RawBody(full)).Want(202)
		t.Post(NextPath(s.ID), RawBody(full), undeclared()).Want(202)
		if a := t.Get(BatchPath(s.ID, 2)).Want(200); string(a.Body) != string(full) {
			t.Errorf("a batch of 8 MiB was read with different bytes")
		}
		t.Post(NextPath(s.ID), RawBody(append(full, 0))).Refused(413, "payload_too_large")
		t.Post(NextPath(s.ID), RawBody(append(full, 0)), undeclared()).Refused(413, "payload_too_large")
		if got := t.Stream(s.ID); got.Cursor != 2 || got.BytesStored != 2*BodyLimit {
			t.Errorf("got cursor %d and %d bytes, want 2 and %d", got.Cursor, got.BytesStored, 2*BodyLimit)
		}
	}},
	{"json limit", `D9: on json streams too, the limit applies to the HTTP body`, func(t *T) {
		s := t.jsonStream()
		fill := func(n int) string { return `{"events":["` + strings.Repeat("x", n-len(`{"events":[""]}`)) + `"]}` }
		t.Post(SeqPath(s.ID, 1), JSONBody(fill(BodyLimit))).Want(202)
		t.Post(SeqPath(s.ID, 2), JSONBody(fill(BodyLimit)), undeclared()).Want(202)
		t.Post(SeqPath(s.ID, 3), JSONBody(fill(BodyLimit+1))).Refused(413, "payload_too_large")
		t.Post(SeqPath(s.ID, 3), JSONBody(fill(BodyLimit+1)), undeclared()).Refused(413, "payload_too_large")
		sub := t.Subscribe(s.ID, "cursor=0")
		for seq := int64(1); seq <= 2; seq++ {
			if got := sub.Batch(seq).Events; len(got) != BodyLimit-len(`{"events":}`) {
				t.Errorf("batch %d was delivered with %d bytes", seq, len(got))
			}
		}
	}},
	{"not read to the end", `D9: a body that is too large is refused without reading it to the end`, func(t *T) {
		s := t.rawStream()
		for _, length := range []int64{BodyLimit + 1, 1 << 40} {
			t.Post(NextPath(s.ID), announced("application/octet-stream", length)).Refused(413, "payload_too_large")
		}
		t.Post(NextPath(s.ID), func(r *Request) {
			r.Header.Set("Content-Type", "application/octet-stream")
			r.Body, r.Length = endless{}, -1
		}).Refused(413, "payload_too_large")
	}},
	{"larger than the stream", `D9: a batch larger than the stream's max_bytes gives 413 too`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		t.Post(NextPath(s.ID), RawBody(Filler(MiB))).Want(202)
		t.Post(NextPath(s.ID), RawBody(Filler(MiB+1))).Refused(413, "payload_too_large")
		t.Post(NextPath(s.ID), RawBody(Filler(MiB+1)), undeclared()).Refused(413, "payload_too_large")
		if got := t.Stream(s.ID); got.Cursor != 1 || got.BytesStored != MiB {
			t.Errorf("the refused batch changed the stream: %+v", got)
		}
		j := t.create(`"max_bytes":1048576`)
		events := func(n int) string { return `["` + strings.Repeat("x", n-4) + `"]` }
		t.Publish(j.ID, events(MiB))
		t.Post(NextPath(j.ID), JSONBody(`{"events":`+events(MiB+1)+`}`)).Refused(413, "payload_too_large")
	}},
	{"many small values", `D9: a body of up to 8 MiB may hold any number of JSON values`, func(t *T) {
		s := t.jsonStream()
		n := (BodyLimit - len(`{"events":[]}`) + 1) / 2
		k := t.Publish(s.ID, `[`+strings.Repeat("0,", n-1)+`0]`)
		if k.Accepted != int64(n) {
			t.Errorf("accepted %d of %d events", k.Accepted, n)
		}
	}},
	{"many keys", `D8: duplicate member names are found in bounded time, even among hundreds of thousands`, func(t *T) {
		s := t.jsonStream()
		var b strings.Builder
		for i := range 300_000 {
			b.WriteString(`"k`)
			b.WriteString(strings.Repeat("0", i%3))
			b.WriteString(itoa(i))
			b.WriteString(`":0,`)
		}
		t.Publish(s.ID, `[{`+b.String()+`"last":1}]`)
		t.Post(NextPath(s.ID), JSONBody(`{"events":[{`+b.String()+`"k0":1}]}`)).Refused(400, "invalid_request_error")
	}},
}

// endless is a body that never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }
