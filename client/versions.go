package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// versions decides which HTTP version a client uses for an http URL. The client starts with
// cleartext HTTP/2. Many proxies do not speak cleartext HTTP/2, and behind such a proxy the client
// has to use HTTP/1.1 to reach the service at all.
type versions struct {
	http1  atomic.Bool
	doubts atomic.Int32 // number of failures in a row that can mean either a server with HTTP/1.1 only or a broken connection
}

// If enoughDoubts connections in a row fail before HTTP/2 has begun on them, the client tries
// HTTP/1.1. One failure is not enough, because a connection that breaks fails in the same way.
const enoughDoubts = 3

// failed examines the error of a request. If the server at the address seems to speak HTTP/1.1
// only, failed sends it an HTTP/1.1 request, and switches the client to HTTP/1.1 if there is any
// response. It returns the error of the original request, wrapped if the client has switched.
func (v *versions) failed(ctx context.Context, c *Client, t http.RoundTripper, err error) error {
	if s, ok := t.(*single); ok {
		t = s.transport
	}
	if own, ok := t.(*http.Transport); !ok || c.o.Transport != nil || v.http1.Load() || !own.Protocols.UnencryptedHTTP2() {
		return err
	}
	// net/http has no error values for these failures.
	switch text := err.Error(); {
	case strings.Contains(text, "http2: frame too large"): // the first bytes were an HTTP/1.1 response
	case strings.Contains(text, "http2: client conn could not be established"):
		if v.doubts.Add(1) < enoughDoubts {
			return err
		}
	default:
		v.doubts.Store(0)
		return err
	}
	if c.answersHTTP1(ctx) {
		v.http1.Store(true)
		return fmt.Errorf("%s does not speak cleartext HTTP/2; continuing with HTTP/1.1: %w", c.base, err)
	}
	return err
}

// answersHTTP1 reports whether the server sends any response over HTTP/1.1.
func (c *Client) answersHTTP1(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", c.base+"/v1/health", nil)
	if err != nil {
		return false
	}
	t := c.newTransport(true)
	defer t.CloseIdleConnections()
	resp, err := t.RoundTrip(req)
	if err != nil {
		return false
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBody))
	resp.Body.Close()
	return true
}

// transports holds the current transport of a client or a publisher. It replaces the transport when
// the client switches to another HTTP version.
type transports struct {
	c    *Client
	make func(http1 bool) http.RoundTripper

	mu    sync.Mutex
	now   http.RoundTripper
	http1 bool // the HTTP version in use is HTTP/1.1
}

func (t *transports) get() http.RoundTripper {
	if t.c.o.Transport != nil {
		return t.c.o.Transport
	}
	http1 := t.c.versions.http1.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil || t.http1 != http1 {
		if t.now != nil {
			closeIdle(t.now)
		}
		t.now, t.http1 = t.make(http1), http1
	}
	return t.now
}

func (t *transports) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		closeIdle(t.now)
	} else {
		closeIdle(t.c.o.Transport)
	}
}
