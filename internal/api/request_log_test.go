package api

import (
	"fmt"
	"testing"

	"weir"
	"weir/internal/meter"
)

// A request id finds the outcome of its request, and refused requests are listed.
func TestRequestLog(t *testing.T) {
	h := newHouse(t, furnish{})
	for _, c := range []struct {
		method, path, key, body string
		want                    Request
	}{
		{"POST", "/v1/streams/{id}/publish", "live", `{"events":[1]}`,
			Request{Method: "POST", Route: "/v1/streams/{id}/publish", Stream: weir.StreamID(h.ids["id"]), KeyID: h.records["live"].ID, Status: 202, Received: 14}},
		{"GET", "/v1/streams/{none}", "live", "",
			Request{Method: "GET", Route: "/v1/streams/{id}", Stream: weir.StreamID(h.ids["none"]), KeyID: h.records["live"].ID, Status: 404, Code: weir.StreamNotFound}},
		{"GET", "/v1/streams/short", "live", "",
			Request{Method: "GET", Route: "/v1/streams/{id}", KeyID: h.records["live"].ID, Status: 400, Code: weir.InvalidStreamID}},
		{"GET", "/v1/streams", "revoked", "",
			Request{Method: "GET", Route: "/v1/streams", Status: 401, Code: weir.KeyRevoked}},
		{"BREW", "/pot", "live", "", Request{Method: "other", Route: "other", Status: 404, Code: weir.NotFound}},
	} {
		req := h.request(c.method, c.path, []string{jsonBody, "Authorization: Bearer " + h.keys[c.key]}, c.body)
		resp, err := h.client["HTTP/1.1"].Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		id := resp.Header.Get("x-request-id")
		got, ok := h.api.Request(id)
		c.want.ID, c.want.At, c.want.Took, c.want.Sent = id, got.At, got.Took, got.Sent
		if !ok || got != c.want || got.At.IsZero() || got.Sent == 0 {
			t.Errorf("%s %s is logged as %+v, want %+v", c.method, c.path, got, c.want)
		}
	}
	if list := h.api.Refused(3); len(list) != 3 || list[0].Route != other || list[2].Code != weir.InvalidStreamID {
		t.Errorf("refused: %+v", list)
	}
	// Refused requests do not displace failed ones.
	note := func(status int, id string) {
		c := &call{r: h.request("GET", "/v1/streams", nil, ""), status: status, fault: faultOf[weir.InternalError]}
		copy(c.id[:], "req_"+id)
		h.api.requests.note(c, 1)
	}
	note(500, "failed0000000000")
	for i := range 2 * meter.Shards * refusedRing {
		note(404, fmt.Sprintf("refused%09d", i))
	}
	if list := h.api.Failed(10); len(list) != 1 || list[0].ID != "req_failed0000000000" || list[0].Code != weir.InternalError {
		t.Errorf("failed: %+v", list)
	}
	if _, ok := h.api.Request("req_failed0000000000"); !ok {
		t.Error("the failed request is not found")
	}
	for _, id := range []string{"", "req_", "req_0000000000000000", "x"} {
		if _, ok := h.api.Request(id); ok {
			t.Errorf("the unknown id %q is found", id)
		}
	}
}

// A ring holds the latest requests, up to its maximum size.
func TestRequestRing(t *testing.T) {
	for _, n := range []int{1, 63, 64, 65, 200, 512, 513, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var r requestRing
			const most = 512
			for i := range n {
				r.slot(most).at = int64(i)
			}
			if len(r.notes) != min(n, most) || cap(r.notes) > most {
				t.Fatalf("%d notes with capacity %d, want %d with at most %d", len(r.notes), cap(r.notes), min(n, most), most)
			}
			kept := map[int64]bool{}
			for _, note := range r.notes {
				kept[note.at] = true
			}
			for i := max(0, n-most); i < n; i++ {
				if !kept[int64(i)] {
					t.Fatalf("note %d of %d is missing", i, n)
				}
			}
		})
	}
}
