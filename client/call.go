package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"weir"
)

// request is one request, ready to be sent as often as it takes.
type request struct {
	method      string
	path        string // with its query
	contentType string // of the body; empty: there is none
	body        []byte
	key         string // Idempotency-Key
	accept      string
	last        string // Last-Event-ID
	sent        func() // called when the body was handed to the connection, or will not be
}

// maxAnswer bounds what is read of an answer: a batch of 8 MiB, with room for the members around it.
const maxAnswer = weir.MaxBody + 1<<20

// open sends a request once and returns the answer, if it is a success; whoever calls closes its body.
func (c *Client) open(ctx context.Context, t http.RoundTripper, r *request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, nil)
	if err != nil {
		return nil, strange{err}
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

// do sends a request until it succeeds, is refused, or was tried often enough. It returns how often it was tried.
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

// once sends a request once and decodes the answer: into a *body as it is, into anything else as JSON.
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
		return fmt.Errorf("read the answer: %w", err)
	}
	if len(b) > maxAnswer {
		return strange{errors.New("the answer is longer than any of Weir")}
	}
	switch answer := answer.(type) {
	case nil:
	case *body:
		*answer = body{resp.Header.Get("content-type"), b}
	default:
		if err := json.Unmarshal(b, answer); err != nil {
			return strange{fmt.Errorf("the answer is not one of Weir: %w", err)}
		}
	}
	return nil
}

// body is an answer as it came.
type body struct {
	contentType string
	bytes       []byte
}

// backoff is how long to wait before the try after the n-th: 50 to 100 ms at first, twice as long each time, up to a
// limit. The random half keeps clients apart that were cut off together.
func backoff(n int, most time.Duration) time.Duration {
	d := most
	if n < 20 {
		d = min(most, 100*time.Millisecond<<(n-1))
	}
	return d/2 + rand.N(d/2+1)
}

// wait sleeps, unless the context ends first.
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

// attach gives a request its body.
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
	// Without GetBody no transport sends it again by itself, which a publisher wants to do, in order.
	req.Body = &sending{bytes.NewReader(r.body), r.sent}
}

// sending is a body that tells when it was sent, for transports that have no trace.
type sending struct {
	io.Reader
	sent func()
}

func (s *sending) Close() error {
	s.sent()
	return nil
}
