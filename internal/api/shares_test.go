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

// lowMemory starts a service that has 64 MiB for bodies, and as much for answers.
func lowMemory(t *testing.T, args ...string) *servicetest.Service {
	t.Helper()
	was := debug.SetMemoryLimit(256 * mib)
	defer debug.SetMemoryLimit(was)
	return servicetest.Start(t, servicetest.Options{Args: args})
}

// stall opens a connection, sends the text and then nothing.
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

// call sends a request that must be answered with this status.
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
		t.Errorf("%s %s: %d %.300s", method, path, resp.StatusCode, b)
	}
	return b
}

// awaitBodies waits until requests hold at least so much memory for their bodies.
func awaitBodies(t *testing.T, s *servicetest.Service, bytes int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); s.API.Bodies.Stats().Held < bytes; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("bodies hold %+v, want %d bytes", s.API.Bodies.Stats(), bytes)
		}
	}
}

// Bodies that declare 8 MiB and stall after a few bytes take nothing from others (D34).
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

// One key fills all memory that it may have with bodies that it does not complete. Other keys, of
// the same project or not, publish bodies of any size, and the same key small ones. Once it needs
// memory for a large body too, the slowest of its bodies make room.
func TestStalledBodiesHoldNobodyUp(t *testing.T) {
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
		t.Errorf("the first answer to a stalled body is %d, want 503", refused)
	}
}

// Subscribers that stall at large batches of one stream keep no client from reading another one,
// not even with the same key, and their memory is bounded.
func TestStalledReadersHoldNobodyUp(t *testing.T) {
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
			t.Errorf("got %d bytes", len(b))
		}
		if b := call(t, s, "GET", "/v1/streams/"+large+"/batches/1", s.Key, nil, http.StatusOK); len(b) != 8*mib {
			t.Errorf("got %d bytes", len(b))
		}
		if m := s.API.Batches.Stats(); m.Held > m.Total {
			t.Errorf("readers hold %d of %d bytes", m.Held, m.Total)
		}
	}
}
