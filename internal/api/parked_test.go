package api_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/api"
	"weir/internal/hub"
)

// goroutines waits until the process has at most this many goroutines.
func goroutines(t *testing.T, most int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > most; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("there are %d goroutines, want at most %d", runtime.NumGoroutine(), most)
		}
	}
}

// awaitTrue waits until the function holds returns true.
func awaitTrue(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("this did not happen within a minute: %s", what)
		}
	}
}

// Subscribers that have received everything have no goroutine, before and after they receive
// batches of any size. They end, and are counted, like other subscribers.
func TestParkedSubscribers(t *testing.T) {
	for _, loops := range []bool{true, false} {
		t.Run(fmt.Sprint("loops ", loops), func(t *testing.T) { testParkedSubscribers(t, loops) })
	}
}

func testParkedSubscribers(t *testing.T, loops bool) {
	svc := startService(t, "--heartbeat", "100ms", fmt.Sprint("--event-loop=", loops))
	const n = 20
	warm := svc.follow("HTTP/1.1", "/v1/streams/{id}", "key: live") // each key has a goroutine that waits for its revocation: start the goroutines of both keys before counting
	reader := svc.follow("HTTP/1.1", "/v1/streams/{id}", "key: reader")
	before := runtime.NumGoroutine()
	var all []*follower
	for range n {
		all = append(all, svc.follow("HTTP/1.1", "/v1/streams/{id}", "key: reader"))
	}
	// Each client has two goroutines for its connection.
	most := before + 2*n + n/2
	s, err := svc.Hub.Stream(weir.StreamID(svc.ids["id"]))
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{10, 20 << 10, 40 << 10, 1 << 20, 10} {
		if loops && runtime.GOOS == "linux" {
			goroutines(t, most)
		}
		payload := []byte(`["` + strings.Repeat("x", size) + `"]`)
		if _, err := s.Publish(context.Background(), &hub.Publish{Batch: weir.Batch{Events: 1, Payload: payload}}); err != nil {
			t.Fatal(err)
		}
		for _, f := range append(all, warm, reader) {
			e := f.event()
			for e.comment {
				e = f.event()
			}
			if e.id != fmt.Sprint(i+1) || len(e.data) < size {
				t.Fatalf("got event %s with %d bytes, want event %d with at least %d bytes", e.id, len(e.data), i+1, size)
			}
		}
	}
	for _, f := range all {
		if e := f.event(); !e.comment {
			t.Errorf("got %+v, want a heartbeat", e)
		}
	}
	all[0].resp.Body.Close()
	awaitTrue(t, "the subscription of a client that left is counted", func() bool { return svc.API.Stats().Ended["client"] == 1 })
	if _, err := svc.Access.Revoke(context.Background(), svc.records["reader"].ID); err != nil {
		t.Fatal(err)
	}
	for _, f := range all[1:] {
		for {
			if _, err := f.next(); err != nil {
				break
			}
		}
	}
	awaitTrue(t, "one subscriber is left", func() bool { return svc.API.Stats().Subscribers == 1 })
	want := map[string]uint64{"client": 1, "slow": 0, "stream_deleted": 0, "stream_closed": 0, "key_revoked": n, "stopping": 0, "failed": 0, "reconnect": 0, "operator": 0}
	if got := svc.API.Stats().Ended; !maps.Equal(got, want) {
		t.Errorf("ended subscriptions are %v, want %v", got, want)
	}
	for _, f := range all {
		var r api.Request
		awaitTrue(t, "the request is recorded", func() (ok bool) { // the server records it shortly after the subscription has ended
			r, ok = svc.API.Request(f.resp.Header.Get("X-Request-Id"))
			return ok
		})
		if r.Route != "/v1/streams/{id}" || r.Status != 200 || r.Method != "GET" || string(r.Stream) != svc.ids["id"] || r.KeyID == "" || r.Took <= 0 {
			t.Errorf("the request is recorded as %+v", r)
		}
	}
}

// A subscriber that catches up gets every batch once and in order. If an event loop can take its
// connection, the subscriber has one goroutine, and net/http has none for it. The client accepts
// nothing while the goroutines are counted, so all subscribers are in the middle of the stream then.
func TestCatchUpWithoutNetHTTP(t *testing.T) {
	for _, loops := range []bool{true, false} {
		t.Run(fmt.Sprint("loops ", loops), func(t *testing.T) { testCatchUpWithoutNetHTTP(t, loops) })
	}
}

func testCatchUpWithoutNetHTTP(t *testing.T, loops bool) {
	svc := startService(t, fmt.Sprint("--event-loop=", loops))
	s, err := svc.Hub.Stream(weir.StreamID(svc.ids["id"]))
	if err != nil {
		t.Fatal(err)
	}
	const n, batches = 20, 300
	payload := []byte(`["` + strings.Repeat("x", 8<<10) + `"]`)
	var publishing sync.WaitGroup
	for range batches { // more than the buffers of a connection hold
		publishing.Go(func() {
			if _, err := s.Publish(context.Background(), &hub.Publish{Batch: weir.Batch{Events: 1, Payload: payload}}); err != nil {
				t.Error(err)
			}
		})
	}
	publishing.Wait()
	svc.follow("HTTP/1.1", "/v1/streams/{id}", "key: live") // starts the goroutine that waits for the revocation of the key
	before := runtime.NumGoroutine()
	var all []*follower
	for range n {
		all = append(all, svc.follow("HTTP/1.1", "/v1/streams/{id}?cursor=0", "key: live"))
	}
	if loops && runtime.GOOS == "linux" {
		goroutines(t, before+3*n+n/2) // two goroutines of each client, and one of the server
	}
	for _, f := range all {
		for i := range batches {
			if e := f.event(); e.id != fmt.Sprint(i+1) || len(e.data) < len(payload) {
				t.Fatalf("got event %s with %d bytes, want event %d with at least %d bytes", e.id, len(e.data), i+1, len(payload))
			}
		}
	}
}
