package service_test

import (
	"net/http"
	"strings"
	"testing"

	"weir"
	"weir/internal/engine/enginetest"
	"weir/internal/service/servicetest"
)

// If a client hangs up while its request creates or deletes a stream, all endpoints agree whether
// the stream exists, at once and after a restart (D33). TestHangUp in internal/trials cuts real
// connections.
func TestClientHangsUp(t *testing.T) {
	o := servicetest.Options{Journal: true, Data: t.TempDir(), Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Leaving") != "" {
				r = r.WithContext(enginetest.Leaving(r.Context()))
			}
			next.ServeHTTP(w, r)
		})
	}}
	s := servicetest.Start(t, o)
	ask := func(method, path, body string, leaving bool) (int, string) {
		t.Helper()
		header := http.Header{"Authorization": {"Bearer " + s.Key}, "Content-Type": {"application/json"}}
		if leaving {
			header.Set("Leaving", "yes")
		}
		resp, text := request(t, method, s.HTTP+path, body, header)
		return resp.StatusCode, text
	}
	want := func(status int, method, path, body string) {
		t.Helper()
		if got, b := ask(method, path, body, false); got != status {
			t.Errorf("%s %s: %d %s, want %d", method, path, got, b, status)
		}
	}
	listed := func(id string, is bool) {
		t.Helper()
		if _, b := ask("GET", "/v1/streams", "", false); strings.Contains(b, id) != is {
			t.Errorf("the list contains stream %s: %v, want %v: %s", id, !is, is, b)
		}
	}
	exists := func(id string) {
		t.Helper()
		want(200, "GET", "/v1/streams/"+id, "")
		listed(id, true)
		want(409, "POST", "/v1/streams", `{"name":"n","id":"`+id+`"}`)
		want(202, "POST", "/v1/streams/"+id+"/publish", `{"events":[1]}`)
	}
	missing := func(id string) {
		t.Helper()
		want(404, "GET", "/v1/streams/"+id, "")
		listed(id, false)
		want(404, "POST", "/v1/streams/"+id+"/publish", `{"events":[1]}`)
		want(404, "DELETE", "/v1/streams/"+id, "")
	}
	kept, gone := string(weir.NewStreamID()), string(weir.NewStreamID())
	for _, id := range []string{kept, gone} {
		ask("POST", "/v1/streams", `{"name":"n","id":"`+id+`"}`, true)
		exists(id)
	}
	ask("DELETE", "/v1/streams/"+gone, "", true)
	missing(gone)
	s.Stop()
	o.Wrap = nil
	s = servicetest.Start(t, o)
	exists(kept)
	missing(gone)
	want(201, "POST", "/v1/streams", `{"name":"n","id":"`+gone+`"}`)
}
