package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// collecting is a handler for event loops. It finishes requests for /later when an event loop calls
// Flush, and never earlier.
type collecting struct {
	*deferring
	mu      sync.Mutex
	flushes int
}

func (h *collecting) Flush() {
	h.mu.Lock()
	h.flushes++
	h.mu.Unlock()
	for {
		select {
		case d := <-h.pending:
			d.finish()
		default:
			return
		}
	}
}

// serveCollecting starts a server with a collecting handler.
func serveCollecting(t *testing.T) (*Server, *collecting) {
	t.Helper()
	if netHTTPOnly {
		t.Skip("needs event loops")
	}
	s := listen(t)
	h := &collecting{deferring: &deferring{Handler: http.HandlerFunc(mirror), pending: make(chan *deferred, 1000)}}
	s.Serve(h, secured())
	return s, h
}

// An event loop calls Flush after every request that the handler has taken, even if the connection
// sends nothing more. It does not call Flush for other requests.
func TestLoopFlushes(t *testing.T) {
	s, h := serveCollecting(t)
	defer s.Shutdown(context.Background())
	c, in := dial(t, s)
	for i := range 100 {
		io.WriteString(c, post11("/later", "", fmt.Sprint(i)))
		expect(t, in, fmt.Sprint("later ", i))
	}
	if h.flushes != 100 {
		t.Errorf("Flush was called %d times for 100 requests, one after another", h.flushes)
	}
	for range 10 {
		io.WriteString(c, post11("/now", "", "")+post11("/unread", "", "x"))
		expect(t, in, "now")
		expect(t, in, "no\n")
	}
	if h.flushes != 100 {
		t.Errorf("Flush was called %d times for other requests", h.flushes-100)
	}
}

// Many connections that send requests at once, each many of them, are all answered.
func TestLoopFlushesForMany(t *testing.T) {
	s, _ := serveCollecting(t)
	defer s.Shutdown(context.Background())
	var clients sync.WaitGroup
	for range 50 {
		c, in := dial(t, s)
		clients.Go(func() { converse(t, c, in) })
	}
	clients.Wait()
}

func converse(t *testing.T, c net.Conn, in *bufio.Reader) {
	for i := range 50 {
		if _, err := io.WriteString(c, post11("/later", "", fmt.Sprint(i))+post11("/now", "", "")+post11("/later", "", "again")); err != nil {
			t.Error(err)
			return
		}
		for _, want := range []string{fmt.Sprint("later ", i), "now", "later again"} {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != want {
				t.Errorf("got %q, %v; want %q", body, err, want)
			}
		}
	}
}
