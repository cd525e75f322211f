package contract

import (
	"fmt"
	"strings"
)

var bodyCases = []Case{
	{"events are returned unchanged", `D8: events are returned as the same JSON text, except for white space between tokens: no number is rounded, no member reordered, no string re-escaped`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "cursor=0")
		for i, events := range exactEvents {
			seq := t.Publish(s.ID, events).Seq
			if seq != int64(i+1) {
				t.Fatalf("%s got sequence %d", Shorten(events), seq)
			}
			t.same(t.Batch(s.ID, seq).Events, []byte(events))
			t.same(sub.Batch(seq).Events, []byte(events))
		}
	}},
	{"bad bodies", `D8: a body that is not a valid batch gives 400 invalid_request_error`, func(t *T) {
		s := t.jsonStream()
		for _, text := range badBodies() {
			t.Post(NextPath(s.ID), JSONBody(text)).Refused(400, "invalid_request_error")
			t.Post(SeqPath(s.ID, 1), JSONBody(text)).Refused(400, "invalid_request_error")
		}
		if got := t.Stream(s.ID); got.Cursor != 0 || got.BytesStored != 0 {
			t.Errorf("a refused body was stored: %+v", got)
		}
	}},
	{"other members", `D8: a body is one JSON object whose member events is an array of any JSON values; other members are ignored`, func(t *T) {
		s := t.jsonStream()
		for i, text := range []string{
			`{"seq":9,"events":[1],"ts":"x","Events":{},"nested":{"events":null}}`,
			" \t\r\n{ \"events\" : [ 1 ] } \r\n",
			`{"\u0065vents":[1]}`,
			`{"a":[{"b":{}}],"events":[1]}`,
		} {
			a := t.Post(NextPath(s.ID), JSONBody(text)).Want(202)
			if k := t.Ack(a, s.ID); k.Seq != int64(i+1) || k.Accepted != 1 {
				t.Errorf("%s: got %+v", text, k)
			}
			t.same(t.Batch(s.ID, int64(i+1)).Events, []byte(`[1]`))
		}
	}},
	{"nesting", `D8: values nest at most 1,000 levels deep, counting the outer object`, func(t *T) {
		s := t.jsonStream()
		deep := func(depth int) string { // depth includes the level of the outer object
			return strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1)
		}
		t.Publish(s.ID, deep(1000))
		t.same(t.Batch(s.ID, 1).Events, []byte(deep(1000)))
		for _, depth := range []int{1001, 100_000, 4_000_000} {
			t.Post(NextPath(s.ID), JSONBody(`{"events":`+deep(depth)+`}`)).Refused(400, "invalid_request_error")
		}
		objects := strings.Repeat(`{"a":`, 999) + "1" + strings.Repeat("}", 999)
		t.Post(NextPath(s.ID), JSONBody(`{"events":[`+objects+`]}`)).Refused(400, "invalid_request_error")
		t.Post(NextPath(s.ID), JSONBody(`{"events":[],"x":`+deep(1001)+`}`)).Refused(400, "invalid_request_error")
	}},
	{"content types", `spec: "415 unsupported_media_type: Content type not accepted"; D7`, func(t *T) {
		j, r := t.jsonStream(), t.rawStream()
		text := []byte(`{"events":[]}`)
		for _, ct := range []string{"", "text/plain", "text/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "application/json, text/plain", "json", "*/*", "application/json;charset=utf-16"} {
			t.Post(NextPath(j.ID), body(ct, text)).Refused(415, "unsupported_media_type")
			t.Post(SeqPath(r.ID, 1), body(ct, text)).Refused(415, "unsupported_media_type")
		}
		t.Post(NextPath(j.ID), RawBody(text)).Refused(415, "unsupported_media_type")
		t.Post(NextPath(r.ID), JSONBody(string(text))).Refused(415, "unsupported_media_type")
		t.Post(NextPath(j.ID), JSONBody(string(text)), WithHeader("Content-Type", "application/json", "application/json")).Refused(415, "unsupported_media_type")
		for _, ct := range []string{"application/json; charset=utf-8", "APPLICATION/JSON", "application/json;charset=UTF-8", "application/json ; x=y"} {
			t.Post(NextPath(j.ID), body(ct, text)).Want(202)
		}
		for _, ct := range []string{"application/octet-stream; a=b", "Application/Octet-Stream"} {
			t.Post(NextPath(r.ID), body(ct, text)).Want(202)
		}
	}},
	{"content encodings", `D7: any Content-Encoding other than identity gives 415`, func(t *T) {
		j, r := t.jsonStream(), t.rawStream()
		for _, e := range []string{"gzip", "br", "zstd", "deflate", "gzip, identity", "x"} {
			t.Post(NextPath(j.ID), JSONBody(`{"events":[]}`), WithHeader("Content-Encoding", e)).Refused(415, "unsupported_media_type")
			t.Post(NextPath(r.ID), RawBody(nil), WithHeader("Content-Encoding", e)).Refused(415, "unsupported_media_type")
		}
		t.Post(NextPath(j.ID), JSONBody(`{"events":[]}`), WithHeader("Content-Encoding", "identity")).Want(202)
	}},
	{"raw bytes", `spec: "raw streams: 200 with the stored bytes and their original content type"; D7: the content type is returned with its parameters`, func(t *T) {
		s := t.rawStream()
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		sub := t.Subscribe(s.ID, "cursor=0")
		for i, b := range [][]byte{all, nil, []byte("\n\nevent: end\ndata: x\n\n"), Filler(100_000), []byte(`{"events":[]}`), []byte("data: \r\rid: 9\r\r")} {
			seq := int64(i + 1)
			ct := fmt.Sprintf(`application/octet-stream; part="%d, of many"`, seq)
			t.Post(SeqPath(s.ID, seq), body(ct, b)).Want(202)
			a := t.Get(BatchPath(s.ID, seq)).Want(200)
			if got := a.Header.Get("Content-Type"); got != ct || string(a.Body) != string(b) {
				t.Errorf("stored %d bytes of %s, read %d bytes of %s", len(b), ct, len(a.Body), got)
			}
			if got := sub.raw(seq); string(got.Data) != string(b) || got.ContentType != ct {
				t.Errorf("stored %d bytes of %s, subscribers got %d bytes of %s", len(b), ct, len(got.Data), got.ContentType)
			}
		}
	}},
}

// exactEvents are arrays that a server would change if it decoded and encoded them again.
var exactEvents = []string{
	`[]`, `[ ]`, `[null,true,false,0,-0,0.0,1E+2,1e-2,1e999999,-1.50]`,
	`[123456789012345678901234567890,0.1000000000000000055511151231257827,9007199254740993]`,
	`[{"b":1,"a":2,"":3,"A":4}]`, `[{"a":{"x":1},"b":{"x":2}},{"a":1}]`,
	`["\u0041\u00e9\ud83d\ude00","é","😀","\/","/","\u0000","\u2028","\b\f\n\r\t\"\\"]`,
	"[\"\u2028\u2029\u0085\ufeff\u007f\"]", `["<script>&amp;</script>","\u003c"]`,
	`["\r\n\r\nevent: end\r\ndata: {}\r\n\r\n","data: x","id: 9\n"]`,
	"[ 1 ,\r\n\t{ \"a\" : [ ] } ]", `["` + "\u00ad\u200b\u202e" + `"]`, `[{"__proto__":1,"constructor":2}]`,
	`[[[[]]],[{}]]`, `["\uFFFF","\uD7FF\uE000"]`,
}

// badBodies returns bodies that are not valid for a publish.
func badBodies() []string {
	list := []string{
		``, ` `, `null`, `[]`, `{}`, `"x"`, `1`, `{`, `{"events"`, `{"events":`, `{"events":[`, `{"events":[1`, `{"events":[1]`,
		`{"events":[1]} x`, `{"events":[1]}{}`, `{"events":[1]},`, `{"events":[1],}`, `{"events":[1,]}`, `{"events":[,1]}`,
		`{"event":[1]}`, `{"Events":[1]}`, `{"events":null}`, `{"events":{}}`, `{"events":"[]"}`, `{"events":1}`, `[{"events":[]}]`,
		`{"events":[],"events":[]}`, `{"events":[],"\u0065vents":[]}`, `{"events":[{"a":1,"a":2}]}`, `{"events":[{"x":{"a":1,"\u0061":2}}]}`,
		`{"events":[],"m":{"b":1,"b":1}}`, "\ufeff" + `{"events":[]}`, "{\x00\"events\":[]}", "{\"events\":[]}\x00",
		`{'events':[]}`, `{"events":[]/**/}`, `{events:[]}`, "{\"events\":[\"a\nb\"]}", "{\"events\":[\"\x01\"]}",
		`{"events":["\x"]}`, `{"events":["\u12"]}`, `{"events":["\u12g4"]}`, `{"events":["]}`,
		`{"events":["\ud800"]}`, `{"events":["\udc00"]}`, `{"events":["\ud800\u0041"]}`, `{"events":["\ud800\ud800"]}`, `{"events":[{"\udfff":1}]}`,
		"{\"events\":[\"\xff\"]}", "{\"events\":[\"\xc0\xaf\"]}", "{\"events\":[\"\xed\xa0\x80\"]}", "{\"events\":[\"\xf4\x90\x80\x80\"]}", "{\"events\":[\"\xe2\x82\"]}",
		"{\"events\":[], \"\xff\":1}",
	}
	for _, v := range []string{`01`, `+1`, `.5`, `1.`, `1e`, `1e+`, `-`, `0x1`, `NaN`, `Infinity`, `-Infinity`, `tru`, `True`, `nul`, `undefined`, `1 2`, `--1`, `1_000`} {
		list = append(list, `{"events":[`+v+`]}`)
	}
	return list
}
