package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"weir"
)

// request is a request that can be sent any number of times.
type request struct {
	method      string
	path        string // including the query
	contentType string // of the body; empty if there is no body
	body        []byte
	key         string // Idempotency-Key
	accept      string
	last        string // Last-Event-ID
	sent        func() // if set, called when the transport has closed the body: it was written, or never will be
}

// maxAnswer limits the size of a response: a batch of 8 MiB, with room for the members around it.
const maxAnswer = weir.MaxBody + 1<<20

// open sends a request once. If the status is 2xx it returns the response; the caller must close
// its body. Any other status is an error.
func (c *Client) open(ctx context.Context, t http.RoundTripper, r *request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, nil)
	if err != nil {
		return nil, permanent{err}
	}
	h := req.Header
	if c.o.Key != "" {
		h.Set("Authorization", "Bearer "+c.o.Key)
	}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set("User-Agent", c.o.UserAgent)
	set("Content-Type", r.contentType)
	set("Idempotency-Key", r.key)
	set("Accept", r.accept)
	set("Last-Event-ID", r.last)
	if r.contentType != "" {
		r.attach(req)
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

// do sends a request until it succeeds, fails for good, or has used up its attempts. It returns the
// number of attempts.
func (c *Client) do(ctx context.Context, r *request, answer any) (tries int, err error) {
	for tries = 1; ; tries++ {
		err = c.once(ctx, c.transport, r, answer)
		if err == nil || tries >= c.o.Attempts || ctx.Err() != nil || !transient(err) {
			return tries, err
		}
		if wait(ctx, max(backoff(tries, 5*time.Second), retryAfter(err))) != nil {
			return tries, err
		}
	}
}

// once sends a request once and decodes the response into answer: as JSON, or unchanged if answer
// is a *body. A nil answer discards the response.
func (c *Client) once(ctx context.Context, t http.RoundTripper, r *request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	resp, err := c.open(ctx, t, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	if len(b) > maxAnswer {
		return permanent{fmt.Errorf("the response is not from Weir: it is larger than %d bytes; check the service URL", maxAnswer)}
	}
	switch answer := answer.(type) {
	case nil:
	case *body:
		*answer = body{resp.Header.Get("content-type"), b}
	default:
		if err := json.Unmarshal(b, answer); err != nil {
			return permanent{fmt.Errorf("the response is not from Weir: %w; check the service URL", err)}
		}
	}
	return nil
}

// body is an undecoded response.
type body struct {
	contentType string
	bytes       []byte
}

// backoff returns how long to wait after the n-th attempt: 50 to 100 ms after the first, and twice
// as long after each subsequent attempt, up to longest. The wait is chosen at random from the upper
// half of its range, so that clients that were disconnected together do not retry together.
func backoff(n int, longest time.Duration) time.Duration {
	d := longest
	if n < 20 {
		d = min(longest, 100*time.Millisecond<<(n-1))
	}
	return d/2 + rand.N(d/2+1)
}

// wait sleeps for d. If the context ends first, it returns the context's error.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attach sets the body of an HTTP request.
func (r *request) attach(req *http.Request) {
	req.ContentLength = int64(len(r.body))
	if len(r.body) == 0 {
		req.Body = http.NoBody
		return
	}
	if r.sent == nil {
		req.Body = io.NopCloser(bytes.NewReader(r.body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.body)), nil }
		return
	}
	// Without GetBody, no transport can resend the request on its own. A publisher resends batches
	// itself, in order.
	req.Body = &sending{bytes.NewReader(r.body), r.sent}
}

// sending is a request body that calls sent when the transport closes it. It is for transports that
// do not support httptrace.
type sending struct {
	io.Reader
	sent func()
}

func (s *sending) Close() error {
	s.sent()
	return nil
}
