package api_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

const mib = 1 << 20

// lowMemory starts a service with 64 MiB of memory for request bodies, and another 64 MiB for
// responses.
func lowMemory(t *testing.T, args ...string) *servicetest.Service {
	t.Helper()
	was := debug.SetMemoryLimit(256 * mib)
	defer debug.SetMemoryLimit(was)
	return servicetest.Start(t, servicetest.Options{Args: args})
}

// stall opens a connection and sends the text. After that it sends and reads nothing.
func stall(t *testing.T, s *servicetest.Service, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.HTTP, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

func head(method, path, key string, length int) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer %s\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n",
		method, path, key, length)
}

// call sends a request and checks that the response has the status want. It returns the body.
func call(t *testing.T, s *servicetest.Service, method, path, key string, body []byte, want int) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.HTTP+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != want {
		t.Errorf("%s %s got status %d, want %d: %.300s", method, path, resp.StatusCode, want, b)
	}
	return b
}

// awaitBodies waits until the bodies of all requests together use at least this many bytes.
func awaitBodies(t *testing.T, s *servicetest.Service, bytes int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); s.API.Bodies.Stats().Held < bytes; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("bodies use %+v, want %d bytes", s.API.Bodies.Stats(), bytes)
		}
	}
}

// Bodies that declare 8 MiB and stall after a few bytes leave enough memory for other bodies (D34).
func TestDeclaredBodiesTakeNoMemory(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	id := s.NewStream(hub.Spec{Mode: weir.Raw})
	path := "/v1/streams/" + string(id) + "/publish"
	writer, other := s.NewKey(access.Publish), s.NewKey()
	for range 32 {
		stall(t, s, head("POST", path, writer, 8*mib)+strings.Repeat("x", 4200))
	}
	awaitBodies(t, s, 32*64<<10)
	call(t, s, "POST", path, other, make([]byte, 1*mib), http.StatusAccepted)
	call(t, s, "POST", path, writer, make([]byte, 8*mib), http.StatusAccepted)
}

// Stalled bodies of one key use all memory that the key may use for bodies. Another key can still
// publish bodies of any size, and the first key can publish small bodies. If the first key then
// publishes a large body, the server gets memory for it by refusing the slowest stalled body.
func TestStalledBodiesLeaveMemory(t *testing.T) {
	s := lowMemory(t)
	path := "/v1/streams/" + string(s.NewStream(hub.Spec{Mode: weir.Raw})) + "/publish"
	writer, other := s.NewKey(access.Publish), s.NewKey()
	sent := make([]byte, 7*mib)
	stalled := make([]net.Conn, 12)
	answers := make(chan int, len(stalled))
	for i := range stalled {
		stalled[i] = stall(t, s, head("POST", path, writer, 8*mib))
		go stalled[i].Write(sent)
		go func() {
			if resp, err := http.ReadResponse(bufio.NewReader(stalled[i]), nil); err == nil {
				answers <- resp.StatusCode
			}
		}()
	}
	awaitBodies(t, s, 28*mib)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { call(t, s, "POST", path, other, make([]byte, 8*mib), http.StatusAccepted) })
		all.Go(func() { call(t, s, "POST", path, writer, make([]byte, 200<<10), http.StatusAccepted) })
	}
	all.Wait()
	call(t, s, "POST", path, writer, make([]byte, 8*mib), http.StatusAccepted)
	if refused := <-answers; refused != http.StatusServiceUnavailable {
		t.Errorf("the first response to a stalled body has status %d, want 503", refused)
	}
}

// Subscribers stall while they receive large batches of one stream. Other clients can still read
// other batches, even with the same key. The memory of the stalled subscribers is bounded.
func TestStalledReadersLeaveMemory(t *testing.T) {
	s := lowMemory(t, "--heartbeat", "100ms")
	large, small := string(s.NewStream(hub.Spec{Mode: weir.Raw})), string(s.NewStream(hub.Spec{Mode: weir.Raw}))
	call(t, s, "POST", "/v1/streams/"+large+"/publish", s.Key, make([]byte, 8*mib), http.StatusAccepted)
	call(t, s, "POST", "/v1/streams/"+small+"/publish", s.Key, make([]byte, 100<<10), http.StatusAccepted)
	reader := s.NewKey(access.Read)
	for range 20 {
		c := stall(t, s, "GET /v1/streams/"+large+"?cursor=0 HTTP/1.1\r\nHost: test\r\nAccept: text/event-stream\r\nAuthorization: Bearer "+reader+"\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(err)
		}
	}
	for range 5 {
		if b := call(t, s, "GET", "/v1/streams/"+small+"/batches/1", reader, nil, http.StatusOK); len(b) != 100<<10 {
			t.Errorf("a reader of the small batch got %d bytes, want 100 KiB", len(b))
		}
		if b := call(t, s, "GET", "/v1/streams/"+large+"/batches/1", s.Key, nil, http.StatusOK); len(b) != 8*mib {
			t.Errorf("a reader of the large batch got %d bytes, want 8 MiB", len(b))
		}
		if m := s.API.Batches.Stats(); m.Held > m.Total {
			t.Errorf("readers use %d bytes of a budget of %d", m.Held, m.Total)
		}
	}
}

// subscribe sends a request for a subscription and returns the connection and the response. If key
// is empty, it sends no key. The subscription lasts until the connection is closed.
func subscribe(t *testing.T, s *servicetest.Service, stream, key string) (net.Conn, *http.Response) {
	t.Helper()
	if key != "" {
		key = "Authorization: Bearer " + key + "\r\n"
	}
	c := stall(t, s, "GET /v1/streams/"+stream+" HTTP/1.1\r\nHost: test\r\nAccept: text/event-stream\r\n"+key+"\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, resp
}

// A place is the right to one open subscription. One key can take three quarters of all places. The
// rest is for other keys and projects.
func TestOneKeyDoesNotTakeAllPlaces(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--max-subscribers", "40"}})
	id := string(s.NewStream(hub.Spec{}))
	greedy, second := s.NewKey(access.Read), s.NewKey(access.Read)
	var open []net.Conn
	for range 30 {
		c, resp := subscribe(t, s, id, greedy)
		if open = append(open, c); resp.StatusCode != http.StatusOK {
			t.Fatalf("subscription %d of one key got status %d, want 200", len(open), resp.StatusCode)
		}
	}
	_, resp := subscribe(t, s, id, greedy)
	if resp.StatusCode == http.StatusOK {
		t.Fatal("one key got more than three quarters of all places")
	}
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusTooManyRequests || !bytes.Contains(b, []byte(`"rate_limited"`)) || resp.Header.Get("Retry-After") != "5" {
		t.Errorf("one key with three quarters of all places got %d, retry-after %q: %s; want 429 rate_limited and 5", resp.StatusCode, resp.Header.Get("Retry-After"), b)
	}
	if _, resp := subscribe(t, s, id, second); resp.StatusCode != http.StatusOK {
		t.Errorf("another key of the project got status %d, want 200", resp.StatusCode)
	}
	open[0].Close()
	for end := time.Now().Add(time.Minute); s.API.Subscribers() == 31 && time.Now().Before(end); <-time.After(time.Millisecond) {
	}
	if _, resp := subscribe(t, s, id, second); resp.StatusCode != http.StatusOK {
		t.Errorf("another key of the project got status %d for its second subscription, want 200", resp.StatusCode)
	}
	if got := s.API.Stats(); got.Refused["share"] != 1 || got.Refused["full"] != 0 || got.Places != 40 {
		t.Errorf("refused subscriptions: %v, places: %d; want 1 refused because of the share of its key, none because all places were taken, and 40 places", got.Refused, got.Places)
	}
}

// A place is the right to one open subscription. Clients that read the demo stream without a key of
// a project get at most a sixteenth of all places per address.
func TestDemoDoesNotTakeAllPlaces(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--max-subscribers", "64", "--demo"}})
	for i := range 6 {
		key, want := "", http.StatusOK
		if i%2 == 1 {
			key = access.DemoKey
		}
		if i >= 4 {
			want = http.StatusTooManyRequests
		}
		if _, resp := subscribe(t, s, string(access.DemoStream), key); resp.StatusCode != want {
			t.Errorf("subscription %d of one address to the demo got %d, want %d", i+1, resp.StatusCode, want)
		}
	}
	if _, resp := subscribe(t, s, string(access.DemoStream), s.Key); resp.StatusCode != http.StatusOK {
		t.Errorf("a subscription to the demo with a key of a project got status %d, want 200", resp.StatusCode)
	}
}

// Operators can also set fixed limits for the subscriptions of a key, a project and an address.
func TestFixedLimitsOfPlaces(t *testing.T) {
	for flag, want := range map[string]int{"--max-subscribers-per-key": 3, "--max-subscribers-per-project": 4, "--max-subscribers-per-address": 4} {
		s := servicetest.Start(t, servicetest.Options{Args: []string{flag, fmt.Sprint(want)}})
		id := string(s.NewStream(hub.Spec{}))
		for i := range want + 1 {
			_, resp := subscribe(t, s, id, s.Key)
			if ok := resp.StatusCode == http.StatusOK; ok != (i < want) {
				t.Errorf("%s %d: subscription %d got status %d; accepted: %v, want %v", flag, want, i+1, resp.StatusCode, ok, i < want)
			}
		}
	}
}
