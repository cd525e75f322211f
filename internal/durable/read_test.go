package durable_test

import (
	"testing"

	"weir/internal/engine/memory"
	"weir/internal/service/servicetest"
)

// The lag of a live read includes the stored batches that it has yet to send.
func TestLagOfLiveRead(t *testing.T) {
	e := &hooked{Engine: memory.New(), scan: func() {}, trimmed: func() {}}
	s := servicetest.Start(t, servicetest.Options{Engine: e})
	url, text := s.URL()+"/ds/read", []string{"Content-Type", "text/plain"}
	send(t, "PUT", url, s.Key, "", text...).want(t, 201, "")
	for range 3 {
		send(t, "POST", url, s.Key, "x", text...).want(t, 204, "")
	}
	lag := make(chan uint64, 1)
	e.scan = func() {
		select {
		case lag <- s.Hub.Stats().SlowestLag:
		default:
		}
	}
	send(t, "POST", url, s.Key, "", "Stream-Closed", "true").want(t, 204, "")
	send(t, "GET", url+"?offset=-1&live=sse", s.Key, "").want(t, 200, "")
	if got := <-lag; got != 3 {
		t.Errorf("while the read begins, the lag is %d, want 3", got)
	}
}
