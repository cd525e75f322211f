package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/client"
	"weir/internal/faultnet"
	"weir/internal/service/servicetest"
)

// publishThrough publishes n raw batches of the given size through a proxy, and checks that they
// are stored in order. If the function halfway is not nil, it is called after half of the batches
// were added.
func publishThrough(t *testing.T, o faultnet.Options, now faultnet.Conditions, http1 bool, n, size int, halfway func(proxy)) proxy {
	t.Helper()
	svc := startService(t, nil)
	direct := svc.client(client.Options{})
	id := newStream(t, direct, client.NewStream{Mode: weir.Raw})
	o.Backend = svc.address()
	x := startProxy(t, o)
	c := svc.client(client.Options{URL: x.url, HTTP1: http1})
	p := publisher(t, c, id, client.PublisherOptions{})
	x.Set(now)
	for i := range n {
		if err := p.AddBytes(t.Context(), bytes.Repeat([]byte{byte(i)}, size)); err != nil {
			t.Fatal(err)
		}
		if i == n/2 && halfway != nil {
			halfway(x)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := readEverything(t, direct, id)
	if len(got) != n {
		t.Fatalf("%d batches are stored, want %d", len(got), n)
	}
	for i, b := range got {
		if len(b) != size || b[0] != byte(i) {
			t.Fatalf("batch %d has %d bytes and begins with %d", i, len(b), b[0])
		}
	}
	return x
}

// A publisher does not mistake a slow uplink for a dead connection: it keeps its connection and
// sends nothing twice. HTTP/2 pings that wait behind the data must not end the connection.
func TestPublisherSlowUplink(t *testing.T) {
	t.Parallel()
	const n, size = 3, 256 << 10 // at 40 kB/s, a ping waits 6.5 s behind a batch
	x := publishThrough(t, faultnet.Options{}, faultnet.Conditions{Rate: faultnet.Rate40kB}, false, n, size, nil)
	if x.Opened() != 2 || x.Sent() > n*size*5/4 { // one connection for the client, one for the publisher
		t.Errorf("%d connections, sent %d bytes for %d bytes of payload", x.Opened(), x.Sent(), n*size)
	}
}

// The connection is reset while the publisher sends large batches at 10 Mbit/s. All batches are
// stored, in order.
func TestPublisherReset(t *testing.T) {
	t.Parallel()
	publishThrough(t, faultnet.Options{}, faultnet.Conditions{Rate: faultnet.Rate10M}, false, 4, 1<<20, func(x proxy) {
		for x.Sent() < 1<<20 { // wait, so that the reset hits the middle of a batch
			runtime.Gosched()
		}
		x.Reset()
	})
}

// A proxy repeats every POST. The publisher does not mistake its own batches for those of another
// publisher.
func TestPublisherDuplicatedRequests(t *testing.T) {
	publishThrough(t, faultnet.Options{HTTP: true}, faultnet.Conditions{Duplicate: true}, false, 50, 100, nil)
}

// If a proxy speaks HTTP/1.1 only, the client uses HTTP/1.1 for calls, publishers and subscribers.
func TestHTTP1Only(t *testing.T) {
	svc := startService(t, nil)
	x := startProxy(t, faultnet.Options{Backend: svc.address(), HTTP: true, HTTP1: true})
	c := svc.client(client.Options{URL: x.url})
	id := newStream(t, c, client.NewStream{})
	p := publisher(t, c, id, client.PublisherOptions{BatchEvents: 3})
	addNumbers(t, p, 1, 100)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, readEverything(t, c, id), 100)
	// A subscriber is often the first to connect, so it must switch to HTTP/1.1 too.
	if got := take(t, svc.client(client.Options{URL: x.url}).Subscriber(id, client.SubscriberOptions{From: client.Oldest}), 2); len(got) != 2 {
		t.Errorf("got %d batches, want 2", len(got))
	}
}

// Over HTTP/1.1, one connection that hangs does not stop the other connections. The batch on the
// hanging connection is sent again over another one.
func TestPublisherHungConnection(t *testing.T) {
	t.Parallel()
	var hung atomic.Bool
	publishThrough(t, faultnet.Options{Cut: func(n int) faultnet.Cut {
		if n == 4 && hung.CompareAndSwap(false, true) {
			return faultnet.Cut{Down: 1, Stall: true}
		}
		return faultnet.Cut{}
	}}, faultnet.Conditions{}, true, 200, 1000, nil)
	if !hung.Load() {
		t.Error("no connection hung")
	}
}

// A full disk delays a publisher, but does not make it fail.
func TestPublisherOnAFullDisk(t *testing.T) {
	disk := servicetest.NewDisk()
	s := servicetest.Start(t, servicetest.Options{Engine: disk})
	c := newClient(t, client.Options{URL: s.HTTP, Key: client.Key(s.Key)})
	id := newStream(t, c, client.NewStream{})
	var refused atomic.Int32
	p := publisher(t, c, id, client.PublisherOptions{BatchEvents: 1, OnRetry: func(error, time.Duration) {
		if refused.Add(1) == 3 {
			disk.SetFull(nil)
		}
	}})
	disk.SetFull(func(payload []byte) bool { return len(payload) == 3 && payload[1]%3 == 0 }) // only some batches are refused
	addNumbers(t, p, 1, 30)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, readEverything(t, c, id), 30)
	if refused.Load() < 3 {
		t.Errorf("%d refusals, want at least 3", refused.Load())
	}
}

// Publish is retried for the time in Options.Retry. If no attempt succeeds, the error says that the
// outcome is unknown, and has the key with which the call can be repeated.
func TestUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		broken := errors.New("reset")
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			r.Body.Close()
			return nil, broken
		})})
		start := time.Now()
		_, err := c.Publish(t.Context(), "x", client.Events(1))
		unknown, ok := errors.AsType[*client.UnknownError](err)
		if took := time.Since(start); !ok || unknown.Key != keys[0] || !errors.Is(err, broken) || took < 15*time.Second || took > 30*time.Second {
			t.Errorf("Publish returned after %v: %v", time.Since(start), err)
		}
		for _, want := range []string{"outcome unknown", keys[0]} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
		for _, k := range keys {
			if k != keys[0] {
				t.Error("an attempt used another key")
			}
		}
		if _, err := c.PublishAt(t.Context(), "x", 7, client.Events(1)); !strings.Contains(err.Error(), "outcome unknown: batch 7") {
			t.Error(err)
		}
	})
	// If no connection was opened, nothing was sent, so the outcome is known.
	c := newClient(t, client.Options{URL: "http://127.0.0.1:1", Retry: -1})
	_, err := c.Publish(t.Context(), "x", client.Events(1))
	if _, ok := errors.AsType[*client.UnknownError](err); err == nil || ok {
		t.Errorf("without a connection: %v", err)
	}
}

// A printed key is hidden, and the error for a redirect names the target.
func TestErrorsSayEnough(t *testing.T) {
	o := client.Options{Key: "svc_live_secret"}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", o, o, o.Key), fmt.Sprintf("%s %q %d", o.Key, o.Key, o.Key), o.Key.String()} {
		if strings.Contains(text, "secret") {
			t.Errorf("%q shows the key", text)
		}
	}
	c := newClient(t, client.Options{URL: "http://weir.example", Retry: -1, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		resp := respond(308, "", "")
		resp.Request = r
		resp.Header.Set("Location", "https://weir.example/v1/version")
		return resp, nil
	})})
	if _, err := c.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "it redirects to https://weir.example/v1/version") {
		t.Errorf("a redirect: %v", err)
	}
}
