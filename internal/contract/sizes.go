package contract

import (
	"strings"
	"time"
)

var sizeCases = []Case{
	{"raw limit", `spec: "Maximum body 8 MiB"; D9: "8,388,608 bytes, inclusive, of the HTTP body, with or without Content-Length"`, func(t *T) {
		s := t.rawStream()
		full := filler(bodyLimit)
		t.post(nextPath(s.ID), rawBody(full)).want(202)
		t.post(nextPath(s.ID), rawBody(full), undeclared()).want(202)
		if a := t.get(batchPath(s.ID, 2)).want(200); string(a.Body) != string(full) {
			t.Errorf("8 MiB came back changed")
		}
		t.post(nextPath(s.ID), rawBody(append(full, 0))).refused(413, "payload_too_large")
		t.post(nextPath(s.ID), rawBody(append(full, 0)), undeclared()).refused(413, "payload_too_large")
		if got := t.stream(s.ID); got.Cursor != 2 || got.BytesStored != 2*bodyLimit {
			t.Errorf("cursor %d and %d bytes", got.Cursor, got.BytesStored)
		}
	}},
	{"json limit", `D9 holds for the HTTP body of json streams`, func(t *T) {
		s := t.jsonStream()
		fill := func(n int) string { return `{"events":["` + strings.Repeat("x", n-len(`{"events":[""]}`)) + `"]}` }
		t.post(seqPath(s.ID, 1), jsonBody(fill(bodyLimit))).want(202)
		t.post(seqPath(s.ID, 2), jsonBody(fill(bodyLimit)), undeclared()).want(202)
		t.post(seqPath(s.ID, 3), jsonBody(fill(bodyLimit+1))).refused(413, "payload_too_large")
		t.post(seqPath(s.ID, 3), jsonBody(fill(bodyLimit+1)), undeclared()).refused(413, "payload_too_large")
		sub := t.subscribe(s.ID, "cursor=0")
		for seq := int64(1); seq <= 2; seq++ {
			if got := sub.batch(seq).Events; len(got) != bodyLimit-len(`{"events":}`) {
				t.Errorf("batch %d came as %d bytes", seq, len(got))
			}
		}
	}},
	{"not read to the end", `D9: "A too-large body is refused without reading it to the end"`, func(t *T) {
		s := t.rawStream()
		for _, length := range []int64{bodyLimit + 1, 1 << 40} {
			t.post(nextPath(s.ID), announced("application/octet-stream", length)).refused(413, "payload_too_large")
		}
		t.post(nextPath(s.ID), func(r *request) {
			r.header.Set("Content-Type", "application/octet-stream")
			r.body, r.length = endless{}, -1
		}).refused(413, "payload_too_large")
	}},
	{"larger than the stream", `D9: "A batch larger than the stream's max_bytes also gets 413"`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		t.post(nextPath(s.ID), rawBody(filler(mib))).want(202)
		t.post(nextPath(s.ID), rawBody(filler(mib+1))).refused(413, "payload_too_large")
		t.post(nextPath(s.ID), rawBody(filler(mib+1)), undeclared()).refused(413, "payload_too_large")
		if got := t.stream(s.ID); got.Cursor != 1 || got.BytesStored != mib {
			t.Errorf("the refused batch changed the stream: %+v", got)
		}
		j := t.create(`"max_bytes":1048576`)
		events := func(n int) string { return `["` + strings.Repeat("x", n-4) + `"]` }
		t.publish(j.ID, events(mib))
		t.post(nextPath(j.ID), jsonBody(`{"events":`+events(mib+1)+`}`)).refused(413, "payload_too_large")
	}},
	{"many small values", `D9: up to 8 MiB of any JSON values is a body like any other`, func(t *T) {
		t.heavy()
		s := t.jsonStream()
		n := (bodyLimit - len(`{"events":[]}`) + 1) / 2
		began := time.Now()
		k := t.publish(s.ID, `[`+strings.Repeat("0,", n-1)+`0]`)
		if k.Accepted != int64(n) {
			t.Errorf("accepted %d of %d", k.Accepted, n)
		}
		if took := time.Since(began); took > patience {
			t.Errorf("took %v", took)
		}
	}},
	{"many keys", `D8: duplicate member names are found also among very many, in bounded time`, func(t *T) {
		t.heavy()
		s := t.jsonStream()
		var b strings.Builder
		for i := range 300_000 {
			b.WriteString(`"k`)
			b.WriteString(strings.Repeat("0", i%3))
			b.WriteString(itoa(i))
			b.WriteString(`":0,`)
		}
		t.publish(s.ID, `[{`+b.String()+`"last":1}]`)
		t.post(nextPath(s.ID), jsonBody(`{"events":[{`+b.String()+`"k0":1}]}`)).refused(400, "invalid_request_error")
	}},
}

// heavy leaves a case to another run of the suite.
func (t *T) heavy() {
	if t.Light {
		t.Skip("the same by every transport, and by this one left out")
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }
