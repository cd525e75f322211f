package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weir"
)

// row is one bad (or surprisingly valid) request and the status and error code of its response.
// Names such as A1 refer to the project's catalogue of bad inputs.
type row struct {
	name   string
	method string
	path   string
	header []string
	body   string
	status int
	code   weir.Code
}

const (
	jsonBody = "Content-Type: application/json"
	rawBody  = "Content-Type: application/octet-stream"
	noType   = "X-Nothing: "
	noKey    = "key: "
)

// run sends the request of each row over all protocols, or over the given ones, and checks the
// response. It also checks that refused requests do not change the streams.
func (svc *testService) run(t *testing.T, rows []row, over ...string) {
	if len(over) == 0 {
		over = protocols
	}
	for _, protocol := range over {
		for _, r := range rows {
			before, rawBefore := svc.object(svc.ids["id"]), svc.object(svc.ids["raw"])
			a := svc.do(protocol, svc.request(r.method, r.path, r.header, r.body))
			what := fmt.Sprintf("%s over %s: %s %.80s", r.name, protocol, r.method, r.path)
			if a.status != r.status {
				t.Errorf("%s: got %d %.200s, want %d %s", what, a.status, a.body, r.status, r.code)
				continue
			}
			if r.method == http.MethodHead {
				continue
			}
			if got := svc.code(what, a); got != string(r.code) {
				t.Errorf("%s: got code %q, want %q: %.200s", what, got, r.code, a.body)
			}
			if a.status >= 400 && (svc.object(svc.ids["id"]) != before || svc.object(svc.ids["raw"]) != rawBefore) {
				t.Errorf("%s: the refused request changed a stream", what)
			}
		}
	}
}

// TestAuthentication checks part A of the catalogue.
func TestAuthentication(t *testing.T) {
	svc := startService(t)
	rows := []row{
		{"A1", "GET", "/v1/streams", []string{noKey}, "", 401, weir.MissingAPIKey},
		{"A2", "GET", "/v1/streams", []string{"Authorization: "}, "", 401, weir.MissingAPIKey},
		{"A3", "GET", "/v1/streams", []string{"Authorization: Bearer"}, "", 401, weir.InvalidAPIKey},
		{"A4", "GET", "/v1/streams", []string{"Authorization: Basic dXNlcjpwYXNz"}, "", 401, weir.InvalidAPIKey},
		{"A5", "GET", "/v1/streams", []string{"Authorization: Bearer svc_live_" + strings.Repeat("0", 31)}, "", 401, weir.InvalidAPIKey},
		{"A5", "GET", "/v1/streams", []string{"Authorization: Bearer svc_live_" + strings.Repeat("0", 33)}, "", 401, weir.InvalidAPIKey},
		{"A6", "GET", "/v1/streams", []string{"Authorization: Bearer svc_live_" + strings.Repeat("A", 32)}, "", 401, weir.InvalidAPIKey},
		{"A7", "GET", "/v1/streams", []string{"Authorization: Bearer svc_prod_" + strings.Repeat("0", 32)}, "", 401, weir.InvalidAPIKey},
		{"A7", "GET", "/v1/streams", []string{"Authorization: Bearer SVC_live_" + strings.Repeat("0", 32)}, "", 401, weir.InvalidAPIKey},
		{"A7", "GET", "/v1/streams", []string{"Authorization: Bearer svc-live-" + strings.Repeat("0", 32)}, "", 401, weir.InvalidAPIKey},
		{"A8", "GET", "/v1/streams", []string{"key: unknown"}, "", 401, weir.InvalidAPIKey},
		{"A9", "GET", "/v1/streams", []string{"key: revoked"}, "", 401, weir.KeyRevoked},
		{"A10", "GET", "/v1/streams", []string{"Authorization: Bearer {key:live}g"}, "", 401, weir.InvalidAPIKey},
		{"A11", "GET", "/v1/streams", []string{"Authorization: Bearer {key:live}", "Authorization: Bearer {key:live}"}, "", 401, weir.InvalidAPIKey},
		{"A12", "GET", "/v1/streams", []string{"Authorization: bearer {key:live}"}, "", 200, ""},
		{"A12", "GET", "/v1/streams", []string{"Authorization: BEARER {key:live}"}, "", 200, ""},
		{"A13", "GET", "/v1/streams", []string{"Authorization: Bearer  {key:live}"}, "", 401, weir.InvalidAPIKey},
		{"A13", "GET", "/v1/streams", []string{"Authorization: Bearer\t{key:live}"}, "", 401, weir.InvalidAPIKey},
		{"A14", "GET", "/v1/streams?api_key={key:live}", []string{noKey, "Cookie: key={key:live}"}, "", 401, weir.MissingAPIKey},
		{"A16", "GET", "/v1/streams", []string{"Authorization: Bearer svc_live_" + strings.Repeat("٠", 16)}, "", 401, weir.InvalidAPIKey},
		{"A18", "GET", "/v1/streams/{none}", []string{"key: theirs"}, "", 404, weir.StreamNotFound},
		{"A19", "POST", "/v1/streams/{demo}/publish", []string{"key: demo", jsonBody}, `{"events":[]}`, 403, weir.ProjectForbidden},
		{"A19", "POST", "/v1/streams/{demo}/1", []string{"key: live", jsonBody}, `{"events":[]}`, 403, weir.ProjectForbidden},
		{"A19", "DELETE", "/v1/streams/{demo}", []string{"key: demo"}, "", 403, weir.ProjectForbidden},
		{"A19", "DELETE", "/v1/streams/{demo}", []string{"key: live"}, "", 403, weir.ProjectForbidden},
		{"A20", "GET", "/v1/streams/{id}", []string{"key: demo"}, "", 403, weir.ProjectForbidden},
		{"A20", "GET", "/v1/streams", []string{"key: demo"}, "", 200, ""},
		{"A20", "POST", "/v1/streams", []string{"key: demo", jsonBody}, `{"name":"x"}`, 403, weir.ProjectForbidden},
		{"A21", "GET", "/v1/streams/{demo}", []string{noKey}, "", 200, ""},
		{"A21", "GET", "/v1/streams/{demo}", []string{"Authorization: "}, "", 200, ""},
		{"A21", "HEAD", "/v1/streams/{demo}", []string{noKey}, "", 200, ""},
		{"A21", "GET", "/v1/streams/{demo}/cursor", []string{noKey}, "", 200, ""},
		{"A21", "GET", "/v1/streams/{demo}/batches/1000000", []string{noKey}, "", 404, weir.StreamNotFound},
		{"A21", "GET", "/v1/streams/{demo}", []string{"key: theirs"}, "", 200, ""},
		{"A21", "GET", "/v1/streams/{demo}", []string{"key: unknown"}, "", 401, weir.InvalidAPIKey},
		{"A21", "POST", "/v1/streams/{demo}/1", []string{noKey, jsonBody}, `{"events":[]}`, 401, weir.MissingAPIKey},
		{"A21", "DELETE", "/v1/streams/{demo}", []string{noKey}, "", 401, weir.MissingAPIKey},
		{"A23", "GET", "/v1/streams", []string{noKey, "Cookie: session=abc"}, "", 401, weir.MissingAPIKey},
		{"A25", "POST", "/v1/streams/bad/x", []string{"key: unknown", "Content-Type: text/x"}, `{`, 401, weir.InvalidAPIKey},
		{"A27", "GET", "/v1/health", []string{"key: unknown"}, "", 200, ""},
		{"A27", "GET", "/v1/version", []string{"Authorization: rubbish"}, "", 200, ""},
		{"the key is checked before the route", "GET", "/v1/nope", []string{noKey}, "", 401, weir.MissingAPIKey},
		{"the key is checked before the route", "PUT", "/v1/streams", []string{noKey}, "", 401, weir.MissingAPIKey},

		{"scope", "POST", "/v1/streams/{id}/publish", []string{"key: reader", "Content-Type: text/x"}, `{`, 403, weir.ProjectForbidden},
		{"scope", "DELETE", "/v1/streams/{id}", []string{"key: writer"}, "", 403, weir.ProjectForbidden},
		{"scope", "GET", "/v1/streams/{id}", []string{"key: writer"}, "", 403, weir.ProjectForbidden},
		{"scope", "GET", "/v1/streams", []string{"key: writer"}, "", 403, weir.ProjectForbidden},
		{"scope", "POST", "/v1/streams", []string{"key: reader", "Content-Type: text/x"}, `{`, 403, weir.ProjectForbidden},
		{"scope", "GET", "/v1/streams/{id}", []string{"key: confined"}, "", 403, weir.ProjectForbidden},
		{"scope", "GET", "/v1/streams/{other}", []string{"key: confined"}, "", 200, ""},
		{"scope", "POST", "/v1/streams", []string{"key: confined", jsonBody}, `{"name":"x"}`, 403, weir.ProjectForbidden},
		{"the body is checked before the scope", "POST", "/v1/streams", []string{"key: confined", jsonBody}, `{"name":""}`, 400, weir.InvalidRequest},
		{"the scope is checked before it is known whether the id exists", "POST", "/v1/streams", []string{"key: confined", jsonBody}, `{"name":"x","id":"{id}"}`, 403, weir.ProjectForbidden},
		{"scope", "POST", "/v1/streams", []string{"key: confined", jsonBody}, `{"name":"x","id":"{other}"}`, 409, weir.StreamNameTaken},
	}
	for _, m := range []row{{method: "GET", path: "/v1/streams/{id}"}, {method: "GET", path: "/v1/streams/{id}", header: []string{"Accept: text/event-stream"}},
		{method: "DELETE", path: "/v1/streams/{id}"}, {method: "POST", path: "/v1/streams/{id}/1"}, {method: "POST", path: "/v1/streams/{id}/publish"},
		{method: "GET", path: "/v1/streams/{id}/cursor"}, {method: "GET", path: "/v1/streams/{id}/batches/1"}} {
		m.name, m.header, m.status, m.code = "A17", append(m.header, "key: theirs"), 403, weir.ProjectForbidden
		rows = append(rows, m)
	}
	for i := range rows {
		rows[i].body = svc.fill(rows[i].body)
	}
	svc.run(t, rows)
	for _, secret := range svc.keys {
		if strings.Contains(svc.Log.String(), secret) {
			t.Errorf("the log contains the secret of an API key")
		}
	}
}

// TestPaths checks part U of the catalogue.
func TestPaths(t *testing.T) {
	svc := startService(t)
	var rows []row
	add := func(name, method string, status int, code weir.Code, paths ...string) {
		for _, p := range paths {
			rows = append(rows, row{name, method, p, []string{jsonBody}, "", status, code})
		}
	}
	id := svc.ids["id"]
	add("U1", "GET", 400, weir.InvalidStreamID, "/v1/streams/"+id[1:], "/v1/streams/"+id+"0")
	add("U2", "GET", 400, weir.InvalidStreamID, "/v1/streams/-"+id[1:], "/v1/streams/_"+id[1:], "/v1/streams/."+id[1:], "/v1/streams/%20"+id[1:], "/v1/streams/%C3%A9"+id[2:])
	add("U3", "GET", 400, weir.InvalidStreamID, "/v1/streams/%2e%2e", "/v1/streams/..%2f..%2fetc%2fpasswd", "/v1/streams/a%2fb", "/v1/streams/..", "/v1/streams/.", "/v1/streams/"+id+"%2fcursor")
	add("U4", "GET", 400, weir.InvalidStreamID, "/v1/streams/"+id+"%00", "/v1/streams/"+id[1:]+"%00")
	add("U5", "GET", 400, weir.InvalidStreamID, "/v1/streams/%ff%fe")
	add("U6", "GET", 404, weir.StreamNotFound, "/v1/streams/zzzzzzzzzzzzzzzzzzzzzz")
	add("U7", "GET", 404, weir.NotFound, "/v1//streams", "/v1/streams//cursor", "/v1/streams/../../etc/passwd", "/v1/./streams", "/v1/x/../streams")
	add("U7", "POST", 404, weir.NotFound, "/v1/streams//publish", "/v1/streams/"+id+"//publish")
	add("U8", "GET", 404, weir.NotFound, "/v1/streams/", "/v1/streams/"+id+"/", "/v1/health/", "/v1/", "/v1", "/v1/streams/"+id+"/cursor/")
	add("U9", "GET", 404, weir.NotFound, "/V1/streams", "/v2/streams", "/v1x", "/v1/Streams", "/nope")
	add("U10", "GET", 404, weir.NotFound, "/v1/streams/"+id+"/cursor/x", "/v1/streams/"+id+"/batches/", "/v1/streams/"+id+"/batches/1/x", "/v1/streams/"+id+"/x/1", "/v1/health/x", "/v1/streams/"+id+"/batches/1/")
	for _, m := range []string{"PUT", "PATCH", "TRACE", "get", "PROPFIND"} {
		if m != "PATCH" {
			add("U11", m, 405, weir.MethodNotAllowed, "/v1/streams/"+id, "/v1/streams/bad")
		}
		add("U11", m, 405, weir.MethodNotAllowed, "/v1/streams", "/v1/streams/"+id+"/cursor", "/v1/streams/"+id+"/publish", "/v1/streams/"+id+"/7",
			"/v1/streams/"+id+"/batches/7", "/v1/health", "/v1/version")
	}
	add("U11", "DELETE", 405, weir.MethodNotAllowed, "/v1/streams", "/v1/health", "/v1/streams/"+id+"/7", "/v1/streams/"+id+"/publish")
	add("U11", "GET", 405, weir.MethodNotAllowed, "/v1/streams/"+id+"/7", "/v1/streams/"+id+"/publish")
	add("U11", "POST", 405, weir.MethodNotAllowed, "/v1/health", "/v1/streams/"+id, "/v1/streams/"+id+"/batches/1")
	add("U12", "HEAD", 200, "", "/v1/health", "/v1/version", "/v1/streams", "/v1/streams/"+id, "/v1/streams/"+id+"/cursor")
	add("U12", "HEAD", 404, "", "/v1/streams/"+id+"/batches/1", "/v1/nope")
	add("U12", "HEAD", 405, "", "/v1/streams/"+id+"/publish", "/v1/streams/"+id+"/7")
	add("U14", "GET", 404, weir.NotFound, "/v1/"+strings.Repeat("x", 9<<10))
	add("U14", "GET", 400, weir.InvalidStreamID, "/v1/streams/"+strings.Repeat("x", 9<<10))
	add("U15", "GET", 200, "", "/v1/streams?"+strings.Repeat("a=1&", 3000))
	add("U16", "GET", 200, "", "/v1/streams?a;b", "/v1/streams?%zz=1", "/v1/streams?x=%zz", "/v1/health?limit=0")
	add("U16", "GET", 400, weir.InvalidRequest, "/v1/streams?limit=1;cursor=2") // D35
	add("U17", "POST", 409, weir.InvalidSequence, "/v1/streams/{id}/-1", "/v1/streams/{id}/+1", "/v1/streams/{id}/01", "/v1/streams/{id}/00", "/v1/streams/{id}/1.0", "/v1/streams/{id}/1e3", "/v1/streams/{id}/0x1",
		"/v1/streams/{id}/%D9%A1", "/v1/streams/{id}/1%20", "/v1/streams/{id}/%201", "/v1/streams/{id}/1%00", "/v1/streams/{id}/1%2f2", "/v1/streams/{id}/batches", "/v1/streams/{id}/cursor", "/v1/streams/{id}/..")
	add("U18", "POST", 422, weir.SequenceTooFarAhead, "/v1/streams/{id}/1025", "/v1/streams/{id}/9007199254740991")
	add("U19", "POST", 409, weir.InvalidSequence, "/v1/streams/{id}/9007199254740992", "/v1/streams/{id}/9223372036854775808", "/v1/streams/{id}/18446744073709551617", "/v1/streams/{id}/"+strings.Repeat("9", 10_000))
	add("U21", "POST", 409, weir.InvalidSequence, "/v1/streams/{id}/publish%20", "/v1/streams/{id}/PUBLISH")
	add("U21", "POST", 400, weir.InvalidRequest, "/v1/streams/{id}/%70ublish") // the path decodes to publish, and the body is empty
	add("U22", "GET", 404, weir.StreamNotFound, "/v1/streams/{id}/batches/x", "/v1/streams/{id}/batches/-1", "/v1/streams/{id}/batches/99999999999999999999", "/v1/streams/{id}/batches/1", "/v1/streams/{id}/batches/0", "/v1/streams/{id}/batches/01")
	add("D19: type before sequence", "POST", 409, weir.InvalidSequence, "/v1/streams/{id}/x")
	rows = append(rows, row{"D19: type before sequence", "POST", "/v1/streams/{id}/x", []string{rawBody}, "", 415, weir.UnsupportedMediaType})
	rows = append(rows, row{"D19: id before type", "POST", "/v1/streams/bad/x", []string{rawBody}, "", 400, weir.InvalidStreamID})
	svc.run(t, rows)
	svc.run(t, []row{
		{"U9", "GET", "/", nil, "", 404, weir.NotFound}, // this row tests the handler alone; a whole service has pages at / and /docs
		{"U9", "GET", "/docs", nil, "", 404, weir.NotFound},
		{"U15", "GET", "/v1/streams?" + strings.Repeat("a=1&", 20_000), nil, "", 200, ""}, // this row tests the handler alone; a listener would answer 431
	}, noListener)
	svc.preflights(t)
}

// preflights checks U13 and the other rules of D29. A preflight needs no key, does not count in a
// rate window, and gets the same response on every path. Other responses have CORS header fields
// only if the request has an Origin.
func (svc *testService) preflights(t *testing.T) {
	for _, protocol := range protocols {
		for _, path := range []string{"/v1/streams", "/v1/streams/{id}", "/v1/streams/bad", "/v1/nope", "/v1/health"} {
			a := svc.do(protocol, svc.request("OPTIONS", path, []string{noKey, "Origin: https://page.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization"}, ""))
			if a.status != 204 || a.body != "" || a.header.Get("access-control-allow-origin") != "*" || !strings.Contains(a.header.Get("access-control-allow-methods"), "DELETE") ||
				a.header.Get("access-control-allow-headers") != "authorization, content-type, idempotency-key, last-event-id, x-svc-contiguous, x-svc-publisher" {
				t.Errorf("OPTIONS %s: got %d %v, want 204 with all CORS header fields", path, a.status, a.header)
			}
		}
		a := svc.do(protocol, svc.request("GET", "/v1/nope", []string{"Origin: https://page.example"}, ""))
		if a.status != 404 || a.header.Get("access-control-allow-origin") != "*" || !strings.Contains(a.header.Get("access-control-expose-headers"), "x-svc-cursor") {
			t.Errorf("a page from another origin cannot read the 404 response: %v", a.header)
		}
		if a := svc.do(protocol, svc.request("GET", "/v1/health", []string{noKey}, "")); a.header.Get("access-control-allow-origin") != "" || a.header.Get("vary") != "" {
			t.Errorf("a request without an Origin got CORS header fields: %v", a.header)
		}
	}
}
