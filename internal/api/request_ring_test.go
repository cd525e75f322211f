package api

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"weir"
	"weir/internal/hub"
	"weir/internal/meter"
)

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
				t.Fatalf("the ring holds %d requests, want %d; its capacity is %d, want at most %d", len(r.notes), min(n, most), cap(r.notes), most)
			}
			kept := map[int64]bool{}
			for _, note := range r.notes {
				kept[note.at] = true
			}
			for i := max(0, n-most); i < n; i++ {
				if !kept[int64(i)] {
					t.Fatalf("request %d of %d is missing", i, n)
				}
			}
		})
	}
}

// Refused requests, however many, do not overwrite failed requests in the log.
func TestFailedRequestsStay(t *testing.T) {
	h, r := New(Options{}), httptest.NewRequest("GET", "/v1/streams", nil)
	note := func(status int, id string) {
		c := &call{r: r, status: status, fault: faultOf[weir.InternalError]}
		copy(c.id[:], "req_"+id)
		h.requests.note(c, 1)
	}
	note(500, "failed0000000000")
	for i := range 2 * meter.Shards * refusedRing {
		note(404, fmt.Sprintf("refused%09d", i))
	}
	if list := h.Requests(RequestQuery{Status: 5}, 10); len(list) != 1 || list[0].ID != "req_failed0000000000" || list[0].Code != weir.InternalError {
		t.Errorf("the failed requests are %+v, want one", list)
	}
	if _, ok := h.Request("req_failed0000000000"); !ok {
		t.Error("the failed request is not found")
	}
}

// Successful requests, however many, do not overwrite slow requests in the log. A subscription is not
// slow, however long it lasted.
func TestSlowRequestsStay(t *testing.T) {
	h, r := New(Options{}), httptest.NewRequest("GET", "/v1/streams", nil)
	note := func(took int64, ended <-chan struct{}, id string) {
		c := &call{r: r, status: 200, ended: ended}
		copy(c.id[:], "req_"+id)
		h.requests.note(c, took)
	}
	note(slowAfter, nil, "slow000000000000")
	note(slowAfter, make(chan struct{}), "subscription0000")
	parked := &subscriber{h: h, ended: make(chan struct{})}
	parked.ender.of = listener{stream: &hub.Stream{}, since: meter.Now() - 2*slowAfter}
	parked.finish(endClient)
	for i := range 2 * meter.Shards * servedRing {
		note(1, nil, fmt.Sprintf("served%010d", i))
	}
	if list := h.Requests(RequestQuery{Slow: true}, 10); len(list) != 1 || list[0].ID != "req_slow000000000000" {
		t.Errorf("the slow requests are %+v, want one", list)
	}
}
