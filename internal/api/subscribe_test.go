package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/hub"
)

// follower is a client with an open subscription.
type follower struct {
	t    testing.TB
	resp *http.Response
	sseReader
}

// follow opens a subscription and reads its first frame.
func (svc *testService) follow(protocol, path string, header ...string) *follower {
	svc.t.Helper()
	req := svc.request("GET", path, append([]string{"Accept: text/event-stream"}, header...), "")
	resp, err := svc.client[protocol].Do(req)
	if err != nil {
		svc.t.Fatal(err)
	}
	svc.t.Cleanup(func() { resp.Body.Close() })
	f := &follower{svc.t, resp, sseReader{bufio.NewReader(resp.Body)}}
	if resp.StatusCode != 200 || resp.Header.Get("content-type") != "text/event-stream" || resp.Header.Get("x-accel-buffering") != "no" {
		svc.t.Fatalf("a subscription over %s to %s got %d %v", protocol, path, resp.StatusCode, resp.Header)
	}
	svc.checkUniversal("subscription", answer{resp.StatusCode, resp.Header, ""})
	if e := f.event(); e.retry != "1000" {
		svc.t.Fatalf("the first frame is %+v, want retry: 1000", e)
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

// wants reads one event per id, and checks that the event is the batch with this id.
func (f *follower) wants(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		if e := f.event(); e.id != id || e.name != "batch" {
			f.t.Fatalf("got %+v, want batch %s", e, id)
		}
	}
}

func (svc *testService) publish(stream string, seqs ...string) {
	svc.t.Helper()
	for _, seq := range seqs {
		if a := svc.do("HTTP/1.1", svc.request("POST", "/v1/streams/{"+stream+"}/"+seq, []string{jsonBody}, `{"events":["`+seq+`"]}`)); a.status != 202 {
			svc.t.Fatalf("publish %s: %d %s", seq, a.status, a.body)
		}
	}
}

// TestStarts covers D15, which says where a subscription starts, and the numbers S1 to S3 and S5 of
// the project's catalogue of bad inputs. Other names such as S14 in this file are numbers of the
// catalogue too.
func TestStarts(t *testing.T) {
	svc := startService(t)
	svc.publish("id", "0", "1", "2")
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
			f := svc.follow(protocol, "/v1/streams/{id}"+c.query, header...)
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
	svc.run(t, rows)
	svc.follow("h2c", "/v1/streams/{demo}", noKey)
	svc.publish("id", "3", "4")
	if n := svc.API.Subscribers(); n != len(open)+1 {
		t.Errorf("%d subscribers, want %d", n, len(open)+1)
	}
}

// Batches above an open gap are not delivered until the gap is filled (D4).
func TestOrder(t *testing.T) {
	svc := startService(t)
	f := svc.follow("HTTP/1.1", "/v1/streams/{id}")
	svc.publish("id", "1", "3", "4", "2")
	f.wants("1", "2", "3", "4")
}

// A subscriber that starts at the oldest batch gets all stored batches, small and large.
func TestCatchUp(t *testing.T) {
	svc := startService(t)
	s, err := svc.Hub.Stream(weir.StreamID(svc.ids["raw"]))
	if err != nil {
		t.Fatal(err)
	}
	const count = 300
	for i := range count {
		size := i * 7 % 900
		if i%50 == 49 {
			size = 1 << 20
		}
		if _, err := s.Publish(context.Background(), &hub.Publish{Batch: weir.Batch{ContentType: "application/octet-stream", Events: 1, Payload: make([]byte, size)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, protocol := range protocols {
		f := svc.follow(protocol, "/v1/streams/{raw}?cursor=0")
		for i := range count {
			f.wants(strconv.Itoa(i + 1))
		}
	}
}

// S4: a subscriber that resumes gets one gap event for the batches that were evicted while it was
// disconnected.
func TestEvictedBeforeResume(t *testing.T) {
	svc := startService(t)
	for range 3 {
		if a := svc.do("HTTP/1.1", svc.request("POST", "/v1/streams/{small}/publish", []string{rawBody}, strings.Repeat("x", weir.MinMaxBytes/2))); a.status != 202 {
			t.Fatal(a.body)
		}
	}
	for _, protocol := range protocols {
		f := svc.follow(protocol, "/v1/streams/{small}", "Last-Event-ID: 0")
		if e := f.event(); e.name != "gap" || e.id != "1" || e.data != `{"from":1,"to":1,"reason":"evicted"}` {
			t.Errorf("got %+v, want a gap from 1 to 1", e)
		}
		f.wants("2", "3")
		svc.follow(protocol, "/v1/streams/{small}?cursor=0").wants("2", "3")
	}
	a := svc.do("HTTP/1.1", svc.request("GET", "/v1/streams/{small}/batches/1", nil, ""))
	if svc.code("evicted", a) != "stream_not_found" || !strings.Contains(a.body, "evicted") {
		t.Errorf("reading the evicted batch: %s, want stream_not_found", a.body)
	}
}

// Subscribers of a deleted stream get an end event (D16, D31).
func TestStreamDeleted(t *testing.T) {
	svc := startService(t)
	for i, protocol := range protocols {
		stream := []string{"id", "other"}[i]
		f := svc.follow(protocol, "/v1/streams/{"+stream+"}")
		if a := svc.do(protocol, svc.request("DELETE", "/v1/streams/{"+stream+"}", nil, "")); a.status != 204 || a.body != "" {
			t.Errorf("deleting the stream: %d %s, want 204", a.status, a.body)
		}
		if e := f.event(); e.name != "end" || e.data != `{"reason":"stream_deleted"}` || e.id != "" {
			t.Errorf("got %+v, want an end event", e)
		}
		if _, err := f.next(); err != io.EOF {
			t.Errorf("after the end event: %v, want EOF", err)
		}
		if a := svc.do(protocol, svc.request("DELETE", "/v1/streams/{"+stream+"}", nil, "")); svc.code("delete again", a) != "stream_not_found" {
			t.Errorf("deleting the stream again: %s, want stream_not_found", a.body)
		}
	}
}

// TestRevokedWhileOpen covers S14 and D18: when a key is revoked, all its subscriptions end at
// once, even a subscription that is blocked in a write. Subscriptions of other keys continue.
func TestRevokedWhileOpen(t *testing.T) {
	svc := startService(t)
	var ours []*follower
	for _, protocol := range protocols {
		ours = append(ours, svc.follow(protocol, "/v1/streams/{id}", "key: reader"))
	}
	other := svc.follow("HTTP/1.1", "/v1/streams/{id}", "key: live")
	stuck := svc.subscribeStuck(t, "reader")
	begun := time.Now()
	if _, err := svc.Access.Revoke(context.Background(), svc.records["reader"].ID); err != nil {
		t.Fatal(err)
	}
	for _, f := range ours {
		if e, err := f.next(); err == nil {
			t.Errorf("a subscription of the revoked key got %+v, want an error", e)
		}
	}
	checkCutOff(t, stuck)
	// The write timeout of 30 s would also end the blocked subscription. This check only makes sure
	// that the revocation ended it, not the timeout. It allows more than the 2 s of D18, because a
	// busy machine may need more.
	if d := time.Since(begun); d > 20*time.Second {
		t.Errorf("ending the subscriptions took %v: the write timeout ended them, not the revocation", d)
	}
	svc.publish("id", "1")
	other.wants("1")
	svc.run(t, []row{{"revoked", "GET", "/v1/streams/{id}", []string{"key: reader"}, "", 401, weir.KeyRevoked}})
}

// When a key is revoked while its subscription over HTTP/1.1 waits for a batch, the server closes
// the connection, and not only the response (D18).
func TestRevokedWhileWaiting(t *testing.T) {
	svc := startService(t)
	c, resp := subscribe(t, svc.Service, svc.ids["id"], svc.keys["reader"])
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the subscription got status %d, want 200", resp.StatusCode)
	}
	if _, err := svc.Access.Revoke(context.Background(), svc.records["reader"].ID); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute)) // the server closes an idle connection later than this
	_, err := io.Copy(io.Discard, c)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the connection of the subscription is still open")
	}
}

// subscribeStuck subscribes to a stream and stops reading after 64 KiB. The stream has more data
// than fits into all buffers between the server and the client, so the server blocks in a write.
func (svc *testService) subscribeStuck(t *testing.T, key string) *http.Response {
	t.Helper()
	s, err := svc.Hub.Stream(weir.StreamID(svc.ids["raw"]))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := s.Publish(context.Background(), &hub.Publish{Batch: weir.Batch{ContentType: "application/octet-stream", Events: 1, Payload: make([]byte, 8<<20)}}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := net.Dial("tcp", svc.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "GET /v1/streams/%s?cursor=0 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n", svc.ids["raw"], svc.keys[key])
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 64<<10)); err != nil { // a part of the first batch
		t.Fatal(err)
	}
	return resp
}

// checkCutOff checks that the server has ended a response before it has sent the whole response. To
// do so, it reads the rest of the response.
func checkCutOff(t *testing.T, resp *http.Response) {
	t.Helper()
	if n, err := io.Copy(io.Discard, resp.Body); n > 30<<20 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the subscription has not ended: %d bytes, then %v", n, err)
	}
}

// TestStalled covers S9 and D17: the server disconnects a client that accepts no data for the
// length of the write timeout.
func TestStalled(t *testing.T) {
	svc := startService(t, "--write-timeout", "200ms")
	c := svc.subscribeStuck(t, "live")
	for deadline := time.Now().Add(10 * time.Second); svc.API.Subscribers() > 0; {
		if time.Now().After(deadline) {
			t.Fatal("the stalled subscriber is still connected after 10 s")
		}
		<-time.After(5 * time.Millisecond)
	}
	checkCutOff(t, c)
}

// An idle subscription stays open for much longer than the write timeout, and gets heartbeats
// (D16).
func TestIdle(t *testing.T) {
	svc := startService(t, "--heartbeat", "100ms", "--write-timeout", "30ms")
	for _, protocol := range protocols {
		f := svc.follow(protocol, "/v1/streams/{other}")
		for range 4 {
			if e := f.event(); !e.comment || e != (sseEvent{comment: true}) {
				t.Errorf("%s: got %+v, want a heartbeat", protocol, e)
			}
		}
	}
}

// TestStop covers S15: when the server stops, it asks each subscriber to reconnect after a random
// delay.
func TestStop(t *testing.T) {
	svc := startService(t)
	var open []*follower
	for i := range 20 {
		open = append(open, svc.follow(protocols[i%2], "/v1/streams/{id}"))
	}
	svc.Hub.StopSubscriptions()
	times := map[string]bool{}
	for _, f := range open {
		e := f.event()
		if ms, err := strconv.Atoi(e.retry); err != nil || ms < 500 || ms > 5000 {
			t.Errorf("got %+v, want retry from 500 to 5000", e)
		}
		times[e.retry] = true
		if _, err := f.next(); err != io.EOF {
			t.Errorf("after the retry field: %v, want EOF", err)
		}
	}
	if len(times) < 10 {
		t.Errorf("20 subscribers got only %d different delays: %v", len(times), times)
	}
	// The server either refuses a subscription that starts now, or ends it like the others. In both
	// cases the client retries.
	a := svc.do("HTTP/1.1", svc.request("GET", "/v1/streams/{id}", []string{"Accept: text/event-stream"}, ""))
	if (a.status != 503 || svc.code("while stopping", a) != "overloaded") && (a.status != 200 || strings.Count(a.body, "retry: ") != 2) {
		t.Errorf("a subscription to a server that stops got %d %s, want 503, or 200 with a retry field at the end", a.status, a.body)
	}
}

// The server refuses subscriptions above the limit. When a subscription ends, another can start.
func TestMaxSubscribers(t *testing.T) {
	svc := startService(t, "--max-subscribers", "2")
	f := svc.follow("HTTP/1.1", "/v1/streams/{id}")
	svc.follow("h2c", "/v1/streams/{id}")
	full := row{"S10", "GET", "/v1/streams/{id}", []string{"Accept: text/event-stream"}, "", 503, weir.Overloaded}
	svc.run(t, []row{full})
	f.resp.Body.Close()
	for deadline := time.Now().Add(10 * time.Second); svc.API.Subscribers() == 2; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the ended subscription still counts after 10 s")
		}
	}
	svc.follow("HTTP/1.1", "/v1/streams/{id}")
	svc.run(t, []row{full})
}

// S6: a client that uses HTTP/1.0, which has no chunked encoding, can subscribe too.
func TestHTTP10Subscriber(t *testing.T) {
	svc := startService(t)
	svc.publish("id", "1")
	c, err := net.Dial("tcp", svc.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /v1/streams/%s?cursor=0 HTTP/1.0\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n", svc.ids["id"], svc.keys["live"])
	c.SetDeadline(time.Now().Add(10 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t, resp, sseReader{bufio.NewReader(resp.Body)}}
	f.event()
	f.wants("1")
}

// TestSubscriptionCountsOnce covers D23: a subscription counts as one request towards the rate
// limit, however long it lasts.
func TestSubscriptionCountsOnce(t *testing.T) {
	svc := startService(t, "--rate-live", "100")
	f := svc.follow("HTTP/1.1", "/v1/streams/{id}")
	svc.publish("id", "1", "2", "3")
	f.wants("1", "2", "3")
	if a := svc.do("HTTP/1.1", svc.request("GET", "/v1/streams/{id}", nil, "")); a.header.Get("x-ratelimit-remaining") != "95" {
		t.Errorf("want 95 of 100 requests remaining, got the header %v", a.header)
	}
}
