package contract

import (
	"encoding/json"
	"fmt"
	"strings"
)

var createCases = []Case{
	{"all fields", `spec: POST /v1/streams: "201: stream object" with the fields of the request`, func(t *T) {
		id := NewID()
		s := t.CreateBody(`{"name":"all","retention_seconds":60,"max_bytes":1048576,"mode":"raw","id":"` + id + `"}`)
		want := Stream{id, "all", s.CreatedAt, 60, MiB, 0, 0, "raw", 0, false}
		if s != want || t.Stream(id) != want {
			t.Errorf("got %+v and %+v, want %+v", s, t.Stream(id), want)
		}
	}},
	{"bounds", `spec: "retention_seconds 60 to 2592000", "max_bytes 1 MiB to 4 GiB", inclusive`, func(t *T) {
		if s := t.create(`"retention_seconds":2592000,"max_bytes":4294967296`); s.RetentionSeconds != 2592000 || s.MaxBytes != 4294967296 {
			t.Errorf("created %+v, want the highest limits", s)
		}
		t.create(`"retention_seconds":60,"max_bytes":1048576`)
	}},
	{"names", `spec: name "1 to 128 characters"; D10: counted in Unicode code points`, func(t *T) {
		for _, name := range []string{"a", strings.Repeat("é", 128), strings.Repeat("😀", 128), strings.Repeat("e\u0301", 64),
			"new\nline", "nul \x00", "\u202eback", "<script>alert(1)</script>", "../../etc/passwd", `"quoted" \back`, " ", "\u2028"} {
			text, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			if s := t.CreateBody(`{"name":` + string(text) + `}`); s.Name != name || t.Stream(s.ID).Name != name {
				t.Errorf("name %q was stored as %q", name, s.Name)
			}
		}
	}},
	{"bad bodies", `spec: "400 invalid_request_error (bad body)"; D10: every fault without an error code of its own gets this code`, func(t *T) {
		for _, text := range badCreates() {
			t.Post("/v1/streams", JSONBody(text)).Refused(400, "invalid_request_error")
		}
	}},
	{"retention out of range", `spec: "422 retention_out_of_range: retention_seconds outside 60 to 2592000"`, func(t *T) {
		for _, v := range []string{"59", "0", "-1", "2592001", "9223372036854775808", "1" + strings.Repeat("0", 30)} {
			t.Post("/v1/streams", JSONBody(`{"name":"x","retention_seconds":`+v+`}`)).Refused(422, "retention_out_of_range")
		}
	}},
	{"unknown members", `D10: unknown members are ignored; none of them sets a field that the server owns`, func(t *T) {
		s := t.CreateBody(`{"name":"extra","cursor":9,"bytes_stored":9,"created_at":"2001-01-01T00:00:00.000Z","project":"x","Mode":"raw","__proto__":{"a":[1]}}`)
		if s.Cursor != 0 || s.BytesStored != 0 || s.Mode != "json" || strings.HasPrefix(s.CreatedAt, "2001") {
			t.Errorf("created %+v, want the extra members to be ignored", s)
		}
	}},
	{"content types", `D10: a body that is not application/json gives 415`, func(t *T) {
		good := []byte(`{"name":"typed"}`)
		for _, ct := range []string{"", "text/plain", "application/octet-stream", "text/json", "application/jsonp", "application/x-www-form-urlencoded", "application/json, text/plain"} {
			t.Post("/v1/streams", body(ct, good)).Refused(415, "unsupported_media_type")
		}
		t.Post("/v1/streams", body("application/json", good), WithHeader("Content-Encoding", "gzip")).Refused(415, "unsupported_media_type")
		for _, ct := range []string{"application/json; charset=utf-8", "APPLICATION/JSON", `application/json;charset="utf-8"`} {
			var s Stream
			t.Post("/v1/streams", body(ct, good)).Want(201).decode(&s)
			t.remove(s.ID)
		}
	}},
	{"size", `D10: a body over 64 KiB gives 413`, func(t *T) {
		fill := func(n int) string {
			return `{"name":"x","pad":"` + strings.Repeat("y", n-len(`{"name":"x","pad":""}`)) + `"}`
		}
		t.CreateBody(fill(64 << 10))
		t.Post("/v1/streams", JSONBody(fill(64<<10+1))).Refused(413, "payload_too_large")
		t.Post("/v1/streams", JSONBody(fill(64<<10+1)), undeclared()).Refused(413, "payload_too_large")
		t.Post("/v1/streams", announced("application/json", 10*MiB)).Refused(413, "payload_too_large")
	}},
	{"taken ids", `spec: "409 stream_name_taken (a supplied id already exists)"; D10: also if the existing stream belongs to another project`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `["kept"]`)
		for _, k := range []string{t.Live, t.OtherLive} {
			t.Post("/v1/streams", JSONBody(`{"name":"again","id":"`+s.ID+`"}`), WithKey(k)).Refused(409, "stream_name_taken")
		}
		if got := t.Stream(s.ID); got.Name != s.Name || got.Cursor != 1 {
			t.Errorf("the refused create changed the stream: %+v", got)
		}
	}},
	{"order of refusals", `D10: a request with several faults gets 400 before 422 before 409`, func(t *T) {
		s := t.jsonStream()
		t.Post("/v1/streams", JSONBody(`{"name":"","retention_seconds":1,"id":"`+s.ID+`"}`)).Refused(400, "invalid_request_error")
		t.Post("/v1/streams", JSONBody(`{"retention_seconds":1,"id":"`+s.ID+`"}`)).Refused(400, "invalid_request_error")
		t.Post("/v1/streams", JSONBody(`{"name":"x","retention_seconds":1,"mode":"xml"}`)).Refused(400, "invalid_request_error")
		t.Post("/v1/streams", JSONBody(`{"name":"x","retention_seconds":1,"id":"`+s.ID+`"}`)).Refused(422, "retention_out_of_range")
	}},
}

// badCreates returns bodies that are not valid for a new stream.
func badCreates() []string {
	name129 := fmt.Sprintf(`{"name":%q}`, strings.Repeat("x", 129))
	list := []string{
		``, ` `, `null`, `[]`, `"x"`, `1`, `{`, `{}`, `{"name":"x"`, `{"name":"x",}`, `{"name":"x"} x`, `{"name":"x"}{"name":"x"}`,
		`{'name':'x'}`, `{"name":"x"/**/}`, "\ufeff" + `{"name":"x"}`, `{"name":NaN}`, `{name:"x"}`,
		`{"name":"x","name":"x"}`, `{"Name":"x"}`, `{"NAME":"x"}`, "{\"name\":\"\xff\"}", `{"name":"\ud800"}`, "{\"name\":\"a\nb\"}",
		`{"name":""}`, name129, `{"name":1}`, `{"name":null}`, `{"name":{}}`, `{"name":["x"]}`, `{"mode":"json"}`,
	}
	for _, v := range []string{`"60"`, `60.5`, `60.0`, `6e1`, `true`, `[]`, `null`, `060`, `+60`, `-`} {
		list = append(list, `{"name":"x","retention_seconds":`+v+`}`)
	}
	for _, v := range []string{`1048575`, `4294967297`, `-1`, `0`, `1048576.0`, `"1048576"`, `null`, `1e7`, `99999999999999999999999`} {
		list = append(list, `{"name":"x","max_bytes":`+v+`}`)
	}
	for _, v := range []string{`"RAW"`, `"xml"`, `""`, `1`, `null`, `"json "`} {
		list = append(list, `{"name":"x","mode":`+v+`}`)
	}
	for _, v := range []string{`"short"`, `""`, `"0123456789abcdef012345x"`, `"0123456789abcdef01234-"`, `1`, `null`, `"0123456789abcdef0123é"`} {
		list = append(list, `{"name":"x","id":`+v+`}`)
	}
	return append(list, `{"name":"x","deep":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`}`)
}
