package api_test

import (
	"testing"

	"weir"
	"weir/internal/api"
)

// Request returns the outcome of a request by its id. Refused lists the refused requests.
func TestRequestLog(t *testing.T) {
	svc := startService(t)
	for _, c := range []struct {
		method, path, key, body string
		want                    api.Request
	}{
		{"POST", "/v1/streams/{id}/publish", "live", `{"events":[1]}`,
			api.Request{Method: "POST", Route: "/v1/streams/{id}/publish", Stream: weir.StreamID(svc.ids["id"]), KeyID: svc.records["live"].ID, Status: 202, Received: 14}},
		{"GET", "/v1/streams/{none}", "live", "",
			api.Request{Method: "GET", Route: "/v1/streams/{id}", Stream: weir.StreamID(svc.ids["none"]), KeyID: svc.records["live"].ID, Status: 404, Code: weir.StreamNotFound}},
		{"GET", "/v1/streams/short", "live", "",
			api.Request{Method: "GET", Route: "/v1/streams/{id}", KeyID: svc.records["live"].ID, Status: 400, Code: weir.InvalidStreamID}},
		{"GET", "/v1/streams", "revoked", "",
			api.Request{Method: "GET", Route: "/v1/streams", Status: 401, Code: weir.KeyRevoked}},
		{"BREW", "/pot", "live", "", api.Request{Method: "other", Route: "other", Status: 404, Code: weir.NotFound}},
	} {
		req := svc.request(c.method, c.path, []string{jsonBody, "Authorization: Bearer " + svc.keys[c.key]}, c.body)
		resp, err := svc.client["HTTP/1.1"].Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		id := resp.Header.Get("x-request-id")
		got, ok := svc.API.Request(id)
		c.want.ID, c.want.At, c.want.Took, c.want.Sent = id, got.At, got.Took, got.Sent
		if !ok || got != c.want || got.At.IsZero() || got.Sent == 0 {
			t.Errorf("%s %s is logged as %+v, want %+v", c.method, c.path, got, c.want)
		}
	}
	if list := svc.API.Refused(3); len(list) != 3 || list[0].Route != "other" || list[2].Code != weir.InvalidStreamID {
		t.Errorf("Refused returned %+v", list)
	}
	for _, id := range []string{"", "req_", "req_0000000000000000", "x"} {
		if _, ok := svc.API.Request(id); ok {
			t.Errorf("Request found the unknown id %q", id)
		}
	}
}
