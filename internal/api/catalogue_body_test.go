package api_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/api"
)

const empty = `{"events":[]}`

// TestHeaders covers part H, about header fields, of the project's catalogue of bad inputs. Names
// such as H24 or C22 in this file are numbers of the catalogue.
func TestHeaders(t *testing.T) {
	svc := startService(t)
	var rows []row
	next := func(name string, status int, code weir.Code, path, body string, header ...string) {
		rows = append(rows, row{name, "POST", path, header, body, status, code})
	}
	const to, toRaw = "/v1/streams/{id}/publish", "/v1/streams/{raw}/publish"
	next("H1", 415, weir.UnsupportedMediaType, to, empty, noType)
	for _, ct := range []string{"", "text/plain", "text/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json; charset=utf-16", "application/json, text/plain",
		"application/octet-stream", "application/jsonx", "application/*", "*/*", "application/json;", "application/json; charset", "application/json; charset=utf-8; charset=utf-8x", "application/json;" + strings.Repeat(" a=b;", 1600)} {
		if ct == "application/json;" { // a content type may have an empty parameter
			next("H3", 202, "", to, empty, "Content-Type: "+ct)
			continue
		}
		next("H2, H4, H7", 415, weir.UnsupportedMediaType, to, empty, "Content-Type: "+ct)
	}
	for _, ct := range []string{"application/json; charset=utf-8", "APPLICATION/JSON", "application/json;charset=UTF-8", "application/json; x=y", `application/json; charset="utf-8"`} {
		next("H3", 202, "", to, empty, "Content-Type: "+ct)
	}
	next("H5", 415, weir.UnsupportedMediaType, to, empty, jsonBody, jsonBody)
	next("H6", 415, weir.UnsupportedMediaType, toRaw, empty, jsonBody)
	next("H6", 202, "", toRaw, empty, rawBody)
	next("H7", 415, weir.UnsupportedMediaType, toRaw, empty, rawBody+"; x="+strings.Repeat("y", 1100))
	for _, e := range []string{"gzip", "br", "zstd", "gzip, gzip", "", "identity, gzip"} {
		next("H8", 415, weir.UnsupportedMediaType, to, empty, jsonBody, "Content-Encoding: "+e)
	}
	next("H8", 415, weir.UnsupportedMediaType, to, empty, jsonBody, "Content-Encoding: identity", "Content-Encoding: gzip")
	next("H9", 202, "", to, empty, jsonBody, "Content-Encoding: identity")
	next("H10", 202, "", toRaw, strings.Repeat("x", weir.MaxBody), rawBody)
	next("H10", 413, weir.PayloadTooLarge, toRaw, strings.Repeat("x", weir.MaxBody+1), rawBody)
	next("H10", 413, weir.PayloadTooLarge, to, strings.Repeat("x", weir.MaxBody+1), jsonBody)
	next("D19: size before sequence", 413, weir.PayloadTooLarge, "/v1/streams/{id}/99999", strings.Repeat("x", weir.MaxBody+1), jsonBody)
	next("D19: sequence before body", 422, weir.SequenceTooFarAhead, "/v1/streams/{id}/99999", "{", jsonBody)
	next("D19: type before size", 415, weir.UnsupportedMediaType, to, strings.Repeat("x", weir.MaxBody+1), rawBody)
	for _, key := range []string{"", strings.Repeat("k", 256), "two words", "é", "tab\tbed"} {
		next("H19", 400, weir.InvalidRequest, to, empty, jsonBody, "Idempotency-Key: "+key)
		next("H23", 409, weir.InvalidSequence, "/v1/streams/{id}/x", empty, jsonBody, "Idempotency-Key: "+key)
	}
	next("H19", 400, weir.InvalidRequest, to, empty, jsonBody, "Idempotency-Key: a", "Idempotency-Key: a")
	next("D19: type before key", 415, weir.UnsupportedMediaType, to, empty, rawBody, "Idempotency-Key: ")
	next("H25", 202, "", to, empty, jsonBody, "X-HTTP-Method-Override: DELETE", "X-Original-URL: /v1/nope")
	next("S8", 202, "", to, empty, jsonBody, "Accept: text/event-stream")
	for _, accept := range []string{"*/*", "application/json", "text/event-stream;q=0", "text/html", "text/*", "text/event-stream; q=0.000", ""} {
		rows = append(rows, row{"H15, H17", "GET", "/v1/streams/{id}", []string{"Accept: " + accept}, "", 200, ""})
	}
	for _, path := range []string{"/v1/streams", "/v1/streams/{id}/cursor", "/v1/health"} {
		rows = append(rows, row{"H18", "GET", path, []string{"Accept: text/event-stream"}, "", 200, ""})
	}
	rows = append(rows, row{"H26", "GET", "/v1/streams/{id}", []string{"Range: bytes=0-1", "If-None-Match: *", "If-Modified-Since: Mon, 02 Jan 2106 15:04:05 GMT"}, "", 200, ""},
		row{"S7", "HEAD", "/v1/streams/{id}", []string{"Accept: text/event-stream"}, "", 200, ""})
	svc.run(t, rows)
}

// H24: a request may contain header fields that are meant for responses. The response does not
// repeat their values.
func TestNothingReflected(t *testing.T) {
	svc := startService(t)
	for _, protocol := range protocols {
		a := svc.do(protocol, svc.request("GET", "/v1/streams", []string{"X-Request-Id: req_mine", "X-Ratelimit-Limit: 1", "Server: mine", "X-Svc-Cursor: 7"}, ""))
		if a.header.Get("x-request-id") == "req_mine" || a.header.Get("x-ratelimit-limit") == "1" || a.header.Get("x-svc-cursor") != "" {
			t.Errorf("the response repeats the client's header fields: %v", a.header)
		}
	}
}

// TestCreate covers part C of the catalogue: bodies that create a stream.
func TestCreate(t *testing.T) {
	svc := startService(t)
	var rows []row
	add := func(name string, status int, code weir.Code, bodies ...string) {
		for _, b := range bodies {
			rows = append(rows, row{name, "POST", "/v1/streams", []string{jsonBody}, svc.fill(b), status, code})
		}
	}
	add("C1", 400, weir.InvalidRequest, "", " ", "null", "[]", `"x"`, "1")
	add("C2", 400, weir.InvalidRequest, `{"name":"a"`, `{"name":"a",}`, `{"name":"a"/**/}`, `{'name':'a'}`, `{"name":NaN}`, "\xef\xbb\xbf"+`{"name":"a"}`)
	add("C3", 400, weir.InvalidRequest, `{"name":"a"} x`, `{"name":"a"}{"name":"a"}`)
	add("C4", 400, weir.InvalidRequest, `{"name":"a","name":"b"}`, `{"Name":"a"}`, `{"NAME":"a"}`, `{"name":"a","x":{"y":1,"y":2}}`, `{"name":"a","n\u0061me":"b"}`)
	add("C5", 400, weir.InvalidRequest, "{\"name\":\"\xff\"}", `{"name":"\ud800"}`)
	add("C6", 400, weir.InvalidRequest, `{}`, `{"name":""}`, `{"name":"`+strings.Repeat("x", 129)+`"}`, `{"name":1}`, `{"name":null}`, `{"name":{}}`, `{"name":["a"]}`)
	add("C7", 201, "", `{"name":"`+strings.Repeat("😀", 128)+`"}`)
	add("C8", 201, "", `{"name":"\u0000\n\u202e<script>../../x'; DROP"}`)
	add("C9", 422, weir.RetentionOutOfRange, `{"name":"a","retention_seconds":59}`, `{"name":"a","retention_seconds":0}`, `{"name":"a","retention_seconds":-1}`, `{"name":"a","retention_seconds":2592001}`,
		`{"name":"a","retention_seconds":1000000000000000000000000000000}`, `{"retention_seconds":59,"name":"a"}`)
	add("C10", 201, "", `{"name":"a","retention_seconds":60}`, `{"name":"a","retention_seconds":2592000}`)
	add("C11", 400, weir.InvalidRequest, `{"name":"a","retention_seconds":"60"}`, `{"name":"a","retention_seconds":60.5}`, `{"name":"a","retention_seconds":true}`, `{"name":"a","retention_seconds":[]}`)
	add("C12, C13", 400, weir.InvalidRequest, `{"name":"a","retention_seconds":60.0}`, `{"name":"a","retention_seconds":6e1}`, `{"name":"a","retention_seconds":null}`, `{"name":"a","max_bytes":null}`, `{"name":"a","mode":null}`, `{"name":"a","id":null}`)
	add("C14", 400, weir.InvalidRequest, `{"name":"a","max_bytes":1048575}`, `{"name":"a","max_bytes":4294967297}`, `{"name":"a","max_bytes":-1}`, `{"name":"a","max_bytes":1e9}`, `{"name":"a","max_bytes":99999999999999999999}`)
	add("C15", 201, "", `{"name":"a","max_bytes":1048576}`, `{"name":"a","max_bytes":4294967296}`)
	add("C16", 400, weir.InvalidRequest, `{"name":"a","mode":"RAW"}`, `{"name":"a","mode":"xml"}`, `{"name":"a","mode":""}`, `{"name":"a","mode":1}`)
	add("C17", 400, weir.InvalidRequest, `{"name":"a","id":""}`, `{"name":"a","id":"short"}`, `{"name":"a","id":"{id}0"}`, `{"name":"a","id":"-bcdefghijklmnopqrstuv"}`, `{"name":"a","id":7}`)
	add("C18", 409, weir.StreamNameTaken, `{"name":"a","id":"{id}"}`, `{"name":"a","id":"{theirs}"}`, `{"name":"a","id":"{demo}"}`)
	add("C20", 201, "", `{"name":"a","cursor":9,"bytes_stored":9,"created_at":"x","project_id":"y","__proto__":{}}`)
	add("C21", 413, weir.PayloadTooLarge, `{"name":"a","x":"`+strings.Repeat("x", 64<<10)+`"}`)
	add("C21", 400, weir.InvalidRequest, strings.Repeat("[", 60_000), `{"name":"a","x":`+strings.Repeat("[", 60_000))
	add("C21", 201, "", `{"name":"a","x":"`+strings.Repeat("x", 64<<10-len(`{"name":"a","x":""}`))+`"}`)
	add("order: 400 before 422", 400, weir.InvalidRequest, `{"retention_seconds":1}`, `{"retention_seconds":1,"name":"a","mode":"x"}`, `{"name":"a","retention_seconds":1} x`)
	add("order: 422 before 409", 422, weir.RetentionOutOfRange, `{"name":"a","id":"{id}","retention_seconds":1}`)
	rows = append(rows, row{"C23", "POST", "/v1/streams", []string{"Content-Type: text/plain"}, `{"name":"a"}`, 415, weir.UnsupportedMediaType})
	svc.run(t, rows)
}

// TestCreateLimit covers C22: a project that has reached its limit cannot create a stream (403). If
// the id is also taken, the response is 409 (D10).
func TestCreateLimit(t *testing.T) {
	svc := startService(t)
	for len(svc.list(t, "")) < 50 {
		if a := svc.do("HTTP/1.1", svc.request("POST", "/v1/streams", []string{jsonBody}, `{"name":"x"}`)); a.status != 201 {
			t.Fatalf("creating a stream within the limit: %d %s", a.status, a.body)
		}
	}
	svc.run(t, []row{
		{"C22", "POST", "/v1/streams", []string{jsonBody}, `{"name":"x"}`, 403, weir.StreamLimitReached},
		{"C22", "POST", "/v1/streams", []string{jsonBody}, svc.fill(`{"name":"x","id":"{id}"}`), 409, weir.StreamNameTaken},
	})
}

// TestBodies covers part B of the catalogue: bodies of publishes. TestEvents has the cases about
// JSON syntax.
func TestBodies(t *testing.T) {
	svc := startService(t)
	var rows []row
	add := func(name string, status int, code weir.Code, path, contentType string, bodies ...string) {
		for _, b := range bodies {
			rows = append(rows, row{name, "POST", path, []string{contentType}, b, status, code})
		}
	}
	const to, toRaw = "/v1/streams/{id}/publish", "/v1/streams/{raw}/publish"
	add("B1", 400, weir.InvalidRequest, to, jsonBody, "", "null", "[]", "{}", `{"events":null}`, `{"events":{}}`)
	add("B2", 202, "", to, jsonBody, empty)
	add("B3", 202, "", to, jsonBody, `{"events":[1,"a",null,true,{},[]]}`)
	add("B4", 202, "", to, jsonBody, `{"events":[0`+strings.Repeat(",0", 4_194_280)+`]}`)
	add("B5", 400, weir.InvalidRequest, to, jsonBody, `{"events":`+strings.Repeat("[", 4_000_000))
	add("B7", 400, weir.InvalidRequest, to, jsonBody, `{"events":[{"a":1,"a":2}]}`)
	add("B9", 400, weir.InvalidRequest, to, jsonBody, "{\"events\":[\"\xff\"]}", `{"events":["\udead"]}`)
	add("B11", 202, "", to, jsonBody, strings.Repeat(" ", weir.MaxBody-len(empty))+empty)
	add("B14", 400, weir.InvalidRequest, to, jsonBody, empty+"x", empty+empty)
	add("B19", 202, "", toRaw, rawBody, "")
	add("B22", 413, weir.PayloadTooLarge, "/v1/streams/{small}/publish", rawBody, strings.Repeat("x", weir.MinMaxBytes+1))
	add("B22", 202, "", "/v1/streams/{small}/publish", rawBody, strings.Repeat("x", weir.MinMaxBytes))
	add("B22", 413, weir.PayloadTooLarge, "/v1/streams/{smalljson}/publish", jsonBody, `{"events":["`+strings.Repeat("x", weir.MinMaxBytes)+`"]}`)
	add("B22", 202, "", "/v1/streams/{smalljson}/publish", jsonBody, strings.Repeat(" ", weir.MinMaxBytes)+empty)
	add("B23", 404, weir.StreamNotFound, "/v1/streams/{none}/publish", jsonBody, empty)
	svc.run(t, rows)
}

// H12, D9: a body without a Content-Length has the same size limit. A client whose body is too
// large gets the 413 response.
func TestUndeclaredLength(t *testing.T) {
	svc := startService(t)
	for _, protocol := range protocols {
		for _, c := range []struct{ size, status int }{{0, 202}, {1, 202}, {api.FirstRead, 202}, {api.FirstRead + 1, 202}, {weir.MaxBody, 202}, {weir.MaxBody + 1, 413}, {20 << 20, 413}} {
			req := svc.request("POST", "/v1/streams/{raw}/publish", []string{rawBody}, "")
			req.Body, req.ContentLength = io.NopCloser(io.LimitReader(zeros{}, int64(c.size))), -1
			if a := svc.do(protocol, req); a.status != c.status {
				t.Errorf("%s: %d bytes without a Content-Length: got %d %s", protocol, c.size, a.status, a.body)
			}
		}
		before := svc.object(svc.ids["raw"])
		req := svc.request("POST", "/v1/streams", []string{jsonBody}, "")
		req.Body, req.ContentLength = io.NopCloser(io.LimitReader(zeros{}, 1<<20)), -1
		if a := svc.do(protocol, req); svc.code("create", a) != "payload_too_large" || svc.object(svc.ids["raw"]) != before {
			t.Errorf("%s: creating a stream with too large a body: %d %s, want payload_too_large and no change", protocol, a.status, a.body)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// sendRaw sends bytes unchanged over a new connection and returns the response. If the parameter
// half is true, it closes its side of the connection after the last byte.
func (svc *testService) sendRaw(t *testing.T, half bool, request string) (status int, body string) {
	t.Helper()
	c, err := net.Dial("tcp", svc.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, svc.fill(request)); err != nil {
		t.Fatal(err)
	}
	if half {
		c.(*net.TCPConn).CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// TestBrokenTransport covers H11, H13, B17, B18 and OPTIONS *: requests that no HTTP library sends.
// The service stores no batch for any of them.
func TestBrokenTransport(t *testing.T) {
	svc := startService(t)
	before := svc.object(svc.ids["id"])
	head := "POST /v1/streams/{id}/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key:live}\r\nContent-Type: application/json\r\n"
	for _, c := range []struct {
		name, request string
		half          bool
		status        int
		code          string
	}{
		{"H11: a bad key gets no 100 Continue", strings.Replace(head, "{key:live}", "x", 1) + "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n", false, 401, "invalid_api_key"},
		{"H11: too large a body gets no 100 Continue", head + "Expect: 100-continue\r\nContent-Length: 8388609\r\n\r\n", false, 413, "payload_too_large"},
		{"H13", head + "Content-Length: 100\r\n\r\n{\"events\":[]}", true, 400, "invalid_request_error"},
		{"B18: bad chunk size", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", true, 400, "invalid_request_error"},
		{"B18: cut between chunks", head + "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"events\":[]}\r\n", true, 400, "invalid_request_error"},
		{"connect", "CONNECT /v1/streams HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key:live}\r\n\r\n", false, 405, "method_not_allowed"},
		{"absolute form", "GET http://evil.example/v1/nope HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {key:live}\r\n\r\n", false, 404, "https://weir.example/docs/errors#not_found"},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", false, 204, ""},
		{"HTTP/1.0", "GET /v1/streams HTTP/1.0\r\nAuthorization: Bearer {key:live}\r\n\r\n", false, 200, "data"},
	} {
		status, body := svc.sendRaw(t, c.half, c.request)
		if status != c.status || !strings.Contains(body, c.code) {
			t.Errorf("%s: %d %s, want %d %s", c.name, status, body, c.status, c.code)
		}
	}
	if now := svc.object(svc.ids["id"]); now != before {
		t.Errorf("a broken request changed the stream: %+v", now)
	}
}

// The response to a duplicate does not depend on the body of the request, because the server does
// not read that body (D19, D25).
func TestDuplicatesNeedNoBody(t *testing.T) {
	svc := startService(t)
	for _, protocol := range protocols {
		body := fmt.Sprintf(`{"events":[%q]}`, protocol)
		publish := func(path, body string, header ...string) answer {
			a := svc.do(protocol, svc.request("POST", path, append(header, jsonBody), body))
			if cursor := a.header.Get("x-svc-cursor"); !strings.Contains(a.body, `"cursor":`+cursor+`,`) || cursor == "" {
				t.Errorf("x-svc-cursor is %q, the body is %s", cursor, a.body)
			}
			return a
		}
		first := publish("/v1/streams/{other}/publish", body, "Idempotency-Key: "+protocol)
		again := publish("/v1/streams/{other}/publish", "rubbish", "Idempotency-Key: "+protocol)
		if first.status != 202 || again.status != 200 || strings.Replace(first.body, "false", "true", 1) != again.body {
			t.Errorf("the first publish got %s, the duplicate got %s", first.body, again.body)
		}
		at := "/v1/streams/{other}/" + fmt.Sprint(svc.object(svc.ids["other"]).Cursor+1)
		first, again = publish(at, body), publish(at, "rubbish")
		if first.status != 202 || again.status != 200 || strings.Replace(first.body, "false", "true", 1) != again.body {
			t.Errorf("the first publish got %s, the duplicate got %s", first.body, again.body)
		}
	}
}

// B8, B10, B20: a client that reads a batch gets the same bytes that were published.
func TestBatchUnchanged(t *testing.T) {
	svc := startService(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	big := bytes.Repeat(all, weir.MaxBody/len(all))
	for _, protocol := range protocols {
		for _, payload := range [][]byte{all, {}, big} {
			a := svc.do(protocol, svc.request("POST", "/v1/streams/{raw}/publish", []string{rawBody + "; x=y"}, string(payload)))
			a = svc.do(protocol, svc.request("GET", "/v1/streams/{raw}/batches/"+a.header.Get("x-svc-cursor"), nil, ""))
			if a.status != 200 || a.body != string(payload) || a.header.Get("content-type") != "application/octet-stream; x=y" {
				t.Errorf("%s: a batch of %d bytes was read with status %d as %d bytes of type %s", protocol, len(payload), a.status, len(a.body), a.header.Get("content-type"))
			}
		}
		for _, events := range []string{`[1e999999,-0,1E+2,"\u0000\r\n\u2028/\/"]`, `["` + strings.Repeat("x", 5<<20) + `"]`} {
			a := svc.do(protocol, svc.request("POST", "/v1/streams/{id}/publish", []string{jsonBody}, `{"events": `+events+`}`))
			seq := a.header.Get("x-svc-cursor")
			a = svc.do(protocol, svc.request("GET", "/v1/streams/{id}/batches/"+seq, nil, ""))
			if a.status != 200 || !strings.HasPrefix(a.body, `{"seq":`+seq+`,"ts":"2`) || !strings.HasSuffix(a.body, `Z","events":`+events+`}`) {
				t.Errorf("%s: the events %.80s were read with status %d as %.200s", protocol, events, a.status, a.body)
			}
		}
	}
}
