package api_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"weir"
	"weir/internal/api"
)

// Request returns the outcome of a request by its id. Requests lists the requests that a query selects.
func TestRequestLog(t *testing.T) {
	svc := startService(t)
	for _, c := range []struct {
		method, path, key, body string
		want                    api.Request
	}{
		{"POST", "/v1/streams/{id}/publish", "live", `{"events":[1]}`,
			api.Request{Method: "POST", Route: "/v1/streams/{id}/publish", Stream: weir.StreamID(svc.ids["id"]), KeyID: svc.records["live"].ID, Status: 202, Received: 14}},
		{"GET", "/v1/streams/{none}", "live", "",
			api.Request{Method: "GET", Route: "/v1/streams/{id}", Stream: weir.StreamID(svc.ids["none"]), KeyID: svc.records["live"].ID, Status: 404, Code: weir.StreamNotFound, Message: "stream " + svc.ids["none"] + " does not exist"}},
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
		c.want.ID, c.want.At, c.want.Took, c.want.Sent, c.want.From = id, got.At, got.Took, got.Sent, netip.MustParseAddr("127.0.0.1")
		if c.want.Message == "" && c.want.Code != "" {
			c.want.Message = got.Message
		}
		if !ok || got != c.want || got.At.IsZero() || got.Sent == 0 || (got.Message == "") != (got.Code == "") {
			t.Errorf("%s %s is logged as %+v, want %+v", c.method, c.path, got, c.want)
		}
	}
	if list := svc.API.Requests(api.RequestQuery{Status: 4}, 3); len(list) != 3 || list[0].Route != "other" || list[2].Code != weir.InvalidStreamID {
		t.Errorf("the refused requests are %+v, want the latest 3", list)
	}
	for _, id := range []string{"", "req_", "req_0000000000000000", "x"} {
		if _, ok := svc.API.Request(id); ok {
			t.Errorf("Request found the unknown id %q", id)
		}
	}
}

// Requests lists the requests that a query selects, newest first, up to the given number.
func TestRequestQuery(t *testing.T) {
	svc := startService(t)
	send := func(method, path, key string) string {
		t.Helper()
		resp, err := svc.client["HTTP/1.1"].Do(svc.request(method, path, []string{jsonBody, "Authorization: Bearer " + svc.keys[key]}, `{"events":[1]}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.Header.Get("x-request-id")
	}
	begun := time.Now()
	published, missing, refused, shown := send("POST", "/v1/streams/{id}/publish", "live"), send("GET", "/v1/streams/{none}", "live"),
		send("GET", "/v1/streams", "revoked"), send("GET", "/v1/streams/{id}", "test")
	stream := weir.StreamID(svc.ids["id"])
	for _, c := range []struct {
		what  string
		query api.RequestQuery
		want  []string
	}{
		{"all", api.RequestQuery{Since: begun}, []string{shown, refused, missing, published}},
		{"success", api.RequestQuery{Since: begun, Status: 2}, []string{shown, published}},
		{"404", api.RequestQuery{Status: 404}, []string{missing}},
		{"401", api.RequestQuery{Status: 401, Route: "/v1/streams"}, []string{refused}},
		{"4xx", api.RequestQuery{Status: 4}, []string{refused, missing}},
		{"5xx", api.RequestQuery{Status: 5}, nil},
		{"slow", api.RequestQuery{Slow: true}, nil},
		{"key", api.RequestQuery{Key: svc.records["live"].ID, Since: begun}, []string{missing, published}},
		{"stream", api.RequestQuery{Stream: stream, Since: begun}, []string{shown, published}},
		{"route", api.RequestQuery{Stream: stream, Route: "/v1/streams/{id}/publish", Since: begun}, []string{published}},
		{"unknown route", api.RequestQuery{Route: "/none"}, nil},
		{"later", api.RequestQuery{Since: time.Now().Add(time.Minute)}, nil},
		{"before", api.RequestQuery{Stream: stream, Since: begun.Add(-time.Hour), Before: begun}, nil},
	} {
		var got []string
		for _, r := range svc.API.Requests(c.query, 10) {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	if list := svc.API.Requests(api.RequestQuery{Since: begun}, 1); len(list) != 1 || list[0].ID != shown {
		t.Errorf("a query for the newest request returned %+v, want only that request", list)
	}
}
