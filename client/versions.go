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

// versions says which HTTP version a client uses for an http URL. It starts with cleartext HTTP/2.
// Many proxies do not speak it, and a client that insisted on it could not reach the service at all.
type versions struct {
	http1  atomic.Bool
	doubts atomic.Int32 // failures in a row that may have another reason
}

// enoughDoubts is how many connections must end before HTTP/2 has begun until the client asks over
// HTTP/1.1. A connection that breaks ends like that, too.
const enoughDoubts = 3

// failed looks at the error of a request. If the address seems to speak HTTP/1.1 only, it asks there,
// and on any HTTP response it switches the client to HTTP/1.1. It returns the error of the request.
func (v *versions) failed(ctx context.Context, c *Client, t http.RoundTripper, err error) error {
	if own, ok := t.(*http.Transport); !ok || c.o.Transport != nil || v.http1.Load() || !own.Protocols.UnencryptedHTTP2() {
		return err
	}
	// net/http has no error values for these.
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

// answersHTTP1 reports whether there is any response over HTTP/1.1.
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

// transports holds the transport of a client or a publisher, one for each HTTP version in use.
type transports struct {
	c    *Client
	make func(http1 bool) *http.Transport

	mu    sync.Mutex
	now   *http.Transport
	http1 bool // the version of now
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
			t.now.CloseIdleConnections()
		}
		t.now, t.http1 = t.make(http1), http1
	}
	return t.now
}

func (t *transports) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		t.now.CloseIdleConnections()
	} else {
		closeIdle(t.c.o.Transport)
	}
}
