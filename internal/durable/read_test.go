package durable_test

import (
	"strings"
	"testing"

	"weir/internal/contract"
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

// Reads are compressed if the client accepts it. Each coding has a tag of its own, so a cache that
// has one form of the data is never told that another form is unchanged.
func TestCompressedReads(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	key, url := s.Key, s.URL()+"/ds/long"
	send(t, "PUT", url, key, "", "Content-Type", "text/plain").want(t, 201, "")
	text := strings.Repeat("some text ", 20<<10)
	send(t, "POST", url, key, text, "Content-Type", "text/plain").want(t, 204, "")
	tags := map[string]string{}
	for _, accept := range []string{"identity", "gzip", "zstd"} {
		a := send(t, "GET", url, key, "", "Accept-Encoding", accept).want(t, 200, "")
		coding := a.header.Get("Content-Encoding")
		if got, err := contract.Decompress(coding, []byte(a.body)); err != nil || string(got) != text || coding != strings.TrimPrefix(accept, "identity") {
			t.Errorf("accept-encoding %s: got content-encoding %q, %d bytes and %v, want %d bytes", accept, coding, len(got), err, len(text))
		}
		if got := a.header.Get("Vary"); got != "Accept-Encoding" {
			t.Errorf("accept-encoding %s: vary is %q", accept, got)
		}
		tags[accept] = a.header.Get("ETag")
	}
	for accept := range tags {
		for other, tag := range tags {
			want := 200
			if accept == other {
				want = 304
			}
			a := send(t, "GET", url, key, "", "Accept-Encoding", accept, "If-None-Match", tag).want(t, want, "")
			if want == 304 && (a.header.Get("Content-Encoding") != "" || a.body != "") {
				t.Errorf("the 304 response has content-encoding %q and %d bytes", a.header.Get("Content-Encoding"), len(a.body))
			}
		}
	}
}
