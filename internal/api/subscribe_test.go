package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// follower is a client with an open subscription.
type follower struct {
	t    testing.TB
	resp *http.Response
	sseReader
}

// follow opens a subscription and reads its first frame.
func (h *house) follow(protocol, path string, header ...string) *follower {
	h.t.Helper()
	req := h.request("GET", path, append([]string{"Accept: text/event-stream"}, header...), "")
	resp, err := h.client[protocol].Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { resp.Body.Close() })
	f := &follower{h.t, resp, sseReader{bufio.NewReader(resp.Body)}}
	if resp.StatusCode != 200 || resp.Header.Get("content-type") != "text/event-stream" || resp.Header.Get("x-accel-buffering") != "no" {
		h.t.Fatalf("%s %s: %d %v", protocol, path, resp.StatusCode, resp.Header)
	}
	h.checkUniversal("subscription", answer{resp.StatusCode, resp.Header, ""})
	if e := f.event(); e.retry != "1000" {
		h.t.Fatalf("the first frame is %+v, want retry: 1000", e)
	}
	return f
}

func (f *follower) event() sseEvent {
	f.t.Helper()
	e, err := f.next()
	if err != nil {
		f.t.Fatal(err)
	}
	return e
}

// wants reads as many events as there are ids, and checks that they are these batches.
func (f *follower) wants(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		if e := f.event(); e.id != id || e.name != "batch" {
			f.t.Fatalf("got %+v, want batch %s", e, id)
		}
	}
}

func (h *house) publish(stream string, seqs ...string) {
	h.t.Helper()
	for _, seq := range seqs {
		if a := h.do("HTTP/1.1", h.request("POST", "/v1/streams/{"+stream+"}/"+seq, []string{jsonBody}, `{"events":["`+seq+`"]}`)); a.status != 202 {
			h.t.Fatalf("publish %s: %d %s", seq, a.status, a.body)
		}
	}
}

// TestStarts is D15, and S1 to S3, S5 of the catalogue.
func TestStarts(t *testing.T) {
	h := newHouse(t, furnish{})
	h.publish("id", "0", "1", "2")
	var open []*follower
	for _, protocol := range protocols {
		for _, c := range []struct {
			query string
			last  string
			want  []string
		}{
			{"", "", []string{"3"}}, {"?cursor=head", "", []string{"3"}}, {"?cursor=0", "", []string{"0", "1", "2", "3"}}, {"?cursor=1", "", []string{"2", "3"}}, {"?cursor=3", "", []string{"4"}},
			{"?x=1&cursor=2", "", []string{"3"}}, {"?cursor=head", "0", []string{"1", "2", "3"}}, {"?cursor=rubbish", "1", []string{"2", "3"}}, {"", "2", []string{"3"}}, {"?cursor=1", "3", []string{"4"}},
		} {
			var header []string
			if c.last != "" {
				header = append(header, "Last-Event-ID: "+c.last)
			}
			f := h.follow(protocol, "/v1/streams/{id}"+c.query, header...)
			open = append(open, f)
			f.wants(c.want[:len(c.want)-1]...)
			defer f.wants(c.want[len(c.want)-1])
		}
	}
	var rows []row
	for _, q := range []string{"abc", "-1", "HEAD", "1.0", "18446744073709551616", "9007199254740992", "01", "", "1&cursor=1"} {
		rows = append(rows, row{"S1", "GET", "/v1/streams/{id}?cursor=" + q, []string{"Accept: text/event-stream"}, "", 400, weir.InvalidRequest})
	}
	for _, last := range []string{"abc", "-1", "1.0", "9007199254740992", "head", "1 2"} {
		rows = append(rows, row{"S5", "GET", "/v1/streams/{id}", []string{"Accept: text/event-stream", "Last-Event-ID: " + last}, "", 400, weir.InvalidRequest})
	}
	rows = append(rows, row{"S13", "GET", "/v1/streams/{theirs}", []string{"Accept: text/event-stream"}, "", 403, weir.ProjectForbidden},
		row{"S13", "GET", "/v1/streams/{none}", []string{"Accept: text/event-stream"}, "", 404, weir.StreamNotFound},
		row{"S7", "HEAD", "/v1/streams/{id}?cursor=rubbish", []string{"Accept: text/event-stream"}, "", 200, ""})
	h.run(t, rows)
	h.follow("h2c", "/v1/streams/{demo}", noKey)
	h.publish("id", "3", "4")
	if n := h.api.Subscribers(); n != len(open)+1 {
		t.Errorf("%d subscribers, want %d", n, len(open)+1)
	}
}

// Batches above an open gap are not delivered until the gap is filled (D4).
func TestOrder(t *testing.T) {
	h := newHouse(t, furnish{})
	f := h.follow("HTTP/1.1", "/v1/streams/{id}")
	h.publish("id", "1", "3", "4", "2")
	f.wants("1", "2", "3", "4")
}

// A subscriber that starts at the beginning gets many stored batches, small and large.
func TestCatchUp(t *testing.T) {
	h := newHouse(t, furnish{})
	s, err := h.hub.Stream(weir.StreamID(h.ids["raw"]))
	if err != nil {
		t.Fatal(err)
	}
	const count = 300
	for i := range count {
		size := i * 7 % 900
		if i%50 == 49 {
			size = 1 << 20
		}
		if _, err := s.Publish(context.Background(), &hub.Publish{Batch: weir.Batch{ContentType: bytesType, Events: 1, Payload: make([]byte, size)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, protocol := range protocols {
		f := h.follow(protocol, "/v1/streams/{raw}?cursor=0")
		for i := range count {
			f.wants(strconv.Itoa(i + 1))
		}
	}
}

// S4: a subscriber that resumes gets one gap event for the batches that were evicted meanwhile.
func TestEvictedBeforeResume(t *testing.T) {
	h := newHouse(t, furnish{})
	for range 3 {
		if a := h.do("HTTP/1.1", h.request("POST", "/v1/streams/{small}/publish", []string{rawBody}, strings.Repeat("x", weir.MinMaxBytes/2))); a.status != 202 {
			t.Fatal(a.body)
		}
	}
	for _, protocol := range protocols {
		f := h.follow(protocol, "/v1/streams/{small}", "Last-Event-ID: 0")
		if e := f.event(); e.name != "gap" || e.id != "1" || e.data != `{"from":1,"to":1,"reason":"evicted"}` {
			t.Errorf("got %+v, want a gap from 1 to 1", e)
		}
		f.wants("2", "3")
		h.follow(protocol, "/v1/streams/{small}?cursor=0").wants("2", "3")
	}
	a := h.do("HTTP/1.1", h.request("GET", "/v1/streams/{small}/batches/1", nil, ""))
	if h.code("evicted", a) != "stream_not_found" || !strings.Contains(a.body, "evicted") {
		t.Errorf("the evicted batch: %s", a.body)
	}
}

// Subscribers of a deleted stream get an end event (D16, D31).
func TestStreamDeleted(t *testing.T) {
	h := newHouse(t, furnish{})
	for i, protocol := range protocols {
		stream := []string{"id", "other"}[i]
		f := h.follow(protocol, "/v1/streams/{"+stream+"}")
		if a := h.do(protocol, h.request("DELETE", "/v1/streams/{"+stream+"}", nil, "")); a.status != 204 || a.body != "" {
			t.Errorf("delete: %d %s", a.status, a.body)
		}
		if e := f.event(); e.name != "end" || e.data != `{"reason":"stream_deleted"}` || e.id != "" {
			t.Errorf("got %+v, want an end event", e)
		}
		if _, err := f.next(); err != io.EOF {
			t.Errorf("after the end event: %v, want EOF", err)
		}
		if a := h.do(protocol, h.request("DELETE", "/v1/streams/{"+stream+"}", nil, "")); h.code("delete again", a) != "stream_not_found" {
			t.Errorf("delete again: %s", a.body)
		}
	}
}

// TestRevokedWhileOpen is S14 and D18: when a key is revoked, all its subscriptions end at once,
// even one that is blocked in a write. Subscriptions of other keys continue.
func TestRevokedWhileOpen(t *testing.T) {
	h := newHouse(t, furnish{})
	var ours []*follower
	for _, protocol := range protocols {
		ours = append(ours, h.follow(protocol, "/v1/streams/{id}", "key: reader"))
	}
	other := h.follow("HTTP/1.1", "/v1/streams/{id}", "key: live")
	stuck := h.stuck(t, "reader")
	begun := time.Now()
	if _, err := h.access.Revoke(context.Background(), h.records["reader"].ID); err != nil {
		t.Fatal(err)
	}
	for _, f := range ours {
		if e, err := f.next(); err == nil {
			t.Errorf("a revoked key got %+v", e)
		}
	}
	h.gone(t, stuck)
	if d := time.Since(begun); d > 2*time.Second {
		t.Errorf("ending the subscriptions took %v, want at most 2s", d)
	}
	h.publish("id", "1")
	other.wants("1")
	h.run(t, []row{{"revoked", "GET", "/v1/streams/{id}", []string{"key: reader"}, "", 401, weir.KeyRevoked}})
}

// stuck subscribes to a stream and then reads nothing. The stream holds more than all buffers
// between the server and the client, so the server blocks in a write.
func (h *house) stuck(t *testing.T, key string) net.Conn {
	t.Helper()
	s, err := h.hub.Stream(weir.StreamID(h.ids["raw"]))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := s.Publish(context.Background(), &hub.Publish{Batch: weir.Batch{ContentType: bytesType, Events: 1, Payload: make([]byte, 8<<20)}}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "GET /v1/streams/%s?cursor=0 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n", h.ids["raw"], h.keys[key])
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	return c
}

// gone checks that the server has closed the connection, by reading it up to its end.
func (h *house) gone(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := io.Copy(io.Discard, c); n > 30<<20 || err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection is still open: %d bytes, then %v", n, err)
	}
}

// TestStalled is S9 and D17: a client that accepts nothing for the write timeout is disconnected.
func TestStalled(t *testing.T) {
	h := newHouse(t, furnish{api: func(o *Options) { o.WriteTimeout = 200 * time.Millisecond }})
	c := h.stuck(t, "live")
	for deadline := time.Now().Add(10 * time.Second); h.api.Subscribers() > 0; {
		if time.Now().After(deadline) {
			t.Fatal("the stalled subscriber is still connected after 10 s")
		}
		<-time.After(5 * time.Millisecond)
	}
	h.gone(t, c)
}

// A subscription that is ended between two writes sends nothing more, whichever deadline was set
// last.
func TestWriteAfterEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rec := httptest.NewRecorder()
	w := writer{w: rec, control: http.NewResponseController(rec), timeout: time.Second, ended: ctx}
	if err := w.send(helloFrame(0, false), endFrame); err == nil || rec.Body.Len() > 0 {
		t.Errorf("send = %v, and %q was written", err, rec.Body)
	}
}

// An idle subscription stays open for many write timeouts, and gets heartbeats (D16).
func TestIdle(t *testing.T) {
	h := newHouse(t, furnish{api: func(o *Options) { o.Heartbeat, o.WriteTimeout = 100*time.Millisecond, 30*time.Millisecond }})
	for _, protocol := range protocols {
		f := h.follow(protocol, "/v1/streams/{other}")
		for range 4 {
			if e := f.event(); !e.comment || e != (sseEvent{comment: true}) {
				t.Errorf("%s: got %+v, want a heartbeat", protocol, e)
			}
		}
	}
}

// TestStop is S15: when the server stops, subscribers are asked to reconnect after different
// delays.
func TestStop(t *testing.T) {
	h := newHouse(t, furnish{})
	var open []*follower
	for i := range 20 {
		open = append(open, h.follow(protocols[i%2], "/v1/streams/{id}"))
	}
	h.hub.StopSubscriptions()
	times := map[string]bool{}
	for _, f := range open {
		e := f.event()
		if ms, err := strconv.Atoi(e.retry); err != nil || ms < 500 || ms > 5000 {
			t.Errorf("got %+v, want retry from 500 to 5000", e)
		}
		times[e.retry] = true
		if _, err := f.next(); err != io.EOF {
			t.Errorf("after retry: %v, want EOF", err)
		}
	}
	if len(times) < 10 {
		t.Errorf("20 subscribers got only %d different delays: %v", len(times), times)
	}
	// A new subscription is either refused or ended like the others. In both cases the client
	// retries.
	a := h.do("HTTP/1.1", h.request("GET", "/v1/streams/{id}", []string{"Accept: text/event-stream"}, ""))
	if (a.status != 503 || h.code("while stopping", a) != "overloaded") && (a.status != 200 || strings.Count(a.body, "retry: ") != 2) {
		t.Errorf("while stopping: %d %s", a.status, a.body)
	}
}

// Subscriptions above the limit are refused. When one ends, another can start.
func TestMaxSubscribers(t *testing.T) {
	h := newHouse(t, furnish{api: func(o *Options) { o.MaxSubscribers = 2 }})
	f := h.follow("HTTP/1.1", "/v1/streams/{id}")
	h.follow("h2c", "/v1/streams/{id}")
	full := row{"S10", "GET", "/v1/streams/{id}", []string{"Accept: text/event-stream"}, "", 503, weir.Overloaded}
	h.run(t, []row{full})
	f.resp.Body.Close()
	for deadline := time.Now().Add(10 * time.Second); h.api.Subscribers() == 2; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the ended subscription still counts after 10 s")
		}
	}
	h.follow("HTTP/1.1", "/v1/streams/{id}")
	h.run(t, []row{full})
}

// S6: a client of HTTP/1.0, which has no chunked encoding, gets its events too.
func TestHTTP10Subscriber(t *testing.T) {
	h := newHouse(t, furnish{})
	h.publish("id", "1")
	c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /v1/streams/%s?cursor=0 HTTP/1.0\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n", h.ids["id"], h.keys["live"])
	c.SetDeadline(time.Now().Add(10 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t, resp, sseReader{bufio.NewReader(resp.Body)}}
	f.event()
	f.wants("1")
}

// TestSubscriptionCountsOnce is D23: a subscription counts as one request, however long it lasts.
func TestSubscriptionCountsOnce(t *testing.T) {
	h := newHouse(t, furnish{limits: &access.Limits{Live: 100}})
	f := h.follow("HTTP/1.1", "/v1/streams/{id}")
	h.publish("id", "1", "2", "3")
	f.wants("1", "2", "3")
	if a := h.do("HTTP/1.1", h.request("GET", "/v1/streams/{id}", nil, "")); a.header.Get("x-ratelimit-remaining") != "95" {
		t.Errorf("want 95 requests remaining of 100: %v", a.header)
	}
}
