package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/api"
)

// The request log has a hint for a member that is probably a mistake. The response is the same as
// without that member.
func TestHints(t *testing.T) {
	svc := startService(t)
	send := func(method, path, body string) (status int, answer, hints string) {
		t.Helper()
		resp, err := svc.client["HTTP/1.1"].Do(svc.request(method, path, []string{jsonBody, "Authorization: Bearer " + svc.keys["live"]}, body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := svc.API.Request(resp.Header.Get("x-request-id"))
		if !ok {
			t.Fatalf("%s %s: the request is not in the log", method, path)
		}
		return resp.StatusCode, string(b), r.Hints
	}
	hint := func(member, meant string) string {
		return `unknown member "` + member + `": did you mean ` + meant + `?`
	}
	long := strings.Repeat("retention", 5)
	for _, c := range []struct {
		method, body string
		status       int
		want         string
	}{
		{"POST", `{"name":"a","retention":60}`, 201, hint("retention", "retention_seconds")},
		{"POST", `{"name":"a","retentionSeconds":60,"Mode":"raw"}`, 201, hint("retentionSeconds", "retention_seconds") + " " + hint("Mode", "mode")},
		{"POST", `{"name":"a","ttl":60,"max_byte":1,"retetnion_seconds":60,"modus":1}`, 201, hint("ttl", "ttl_seconds") + " " + hint("max_byte", "max_bytes") + " " + hint("retetnion_seconds", "retention_seconds")},
		{"POST", `{"nmae":"a"}`, 400, hint("nmae", "name")},
		{"POST", `{"stream_name":"a","streamId":"b"}`, 400, hint("stream_name", "name") + " " + hint("streamId", "id")},
		{"POST", `{"name":"a","name\u202e":"b","retention\u202e":60}`, 201, hint(`retention\u202e`, "retention_seconds")},
		{"POST", `{"name":"a","retention_seconds":60,"retention":60}`, 201, ""}, // the member that could be meant is there
		{"POST", `{"name":"a","` + long + `":60}`, 201, ""},
		{"POST", `{"name":"a","colour":"red","user_id":1,"":1,"project":"p"}`, 201, ""},
		{"POST", `{"name":"a","created_at":"now","cursor":7,"bytes_stored":9,"closed":false}`, 201, ""},
		{"POST", `{"name":"a","retention":60`, 400, hint("retention", "retention_seconds")},
		{"POST", `[1]`, 400, ""},
		{"PATCH", `{"max_size":1048576}`, 200, hint("max_size", "max_bytes")},
		{"PATCH", `{"name":"b","id":"x","mode":"raw","ttl_seconds":1,"created_at":"now"}`, 200, ""},
	} {
		path := "/v1/streams"
		if c.method == "PATCH" {
			path += "/{id}"
		}
		status, answer, got := send(c.method, path, c.body)
		if status != c.status || got != c.want {
			t.Errorf("%s %s: status %d with the hints %q, want %d with %q", c.method, c.body, status, got, c.status, c.want)
		}
		for _, echo := range []string{"retention\"", "did you mean", "nmae", "max_size"} {
			if strings.Contains(answer, echo) {
				t.Errorf("%s %s: the response contains %s: %s", c.method, c.body, echo, answer)
			}
		}
	}
	if _, _, hints := send(http.MethodPost, "/v1/streams/{id}/publish", `{"events":[1],"retention":60}`); hints != "" {
		t.Errorf("a publish has the hints %q, want none", hints)
	}
	list := svc.API.Requests(api.RequestQuery{Hinted: true}, 100)
	if len(list) != 8 {
		t.Errorf("the log lists %d requests with hints, want 8", len(list))
	}
	for _, r := range list {
		if r.Hints == "" {
			t.Errorf("the requests with hints include %+v", r)
		}
	}
}
