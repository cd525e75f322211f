package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"weir"
)

// request is a request that can be sent any number of times.
type request struct {
	method      string
	path        string // including the query
	contentType string // content type of the body; empty if there is no body
	body        []byte
	key         string // value of the header field Idempotency-Key
	publisher   string // value of the header field x-svc-publisher, sent together with x-svc-contiguous (D38)
	accept      string
	last        string        // value of the header field Last-Event-ID
	sent        func()        // if set, called when the whole body was written
	wait        time.Duration // the service may take this long to answer, in addition to Options.Timeout
}

// maxAnswer limits the size of a response: a batch of 8 MiB in base64, plus room for the JSON
// members around it.
const maxAnswer = weir.MaxBody/3*4 + 1<<20

// open sends a request. If the status is 2xx, open returns the response, and the caller must close
// the response body. Any other status is an error, and open does not retry, except that it sends the
// request once more if the service refuses the key and the client can get a newer one.
func (c *Client) open(ctx context.Context, t http.RoundTripper, r *request, p *progress) (*http.Response, error) {
	key, err := c.keys.get(ctx, "")
	if err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, t, r, key, p)
	if !refusedKey(err) || c.keys.ask == nil {
		return resp, err
	}
	fresh, asking := c.keys.get(ctx, key)
	switch {
	case asking != nil:
		return nil, asking
	case fresh == key:
		return nil, err
	}
	return c.send(ctx, t, r, fresh, p)
}

func (c *Client) send(ctx context.Context, t http.RoundTripper, r *request, key Key, p *progress) (*http.Response, error) {
	req, err := c.newRequest(ctx, r, key)
	if err != nil {
		return nil, permanent{err}
	}
	if r.contentType != "" {
		r.attach(req, p)
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, c.versions.failed(ctx, c, t, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

// newRequest returns the HTTP request for r, still without a body. It adds the header fields to the
// map directly, under their canonical names: http.Header.Set would allocate a slice for each field,
// and a publisher makes thousands of requests per second.
func (c *Client) newRequest(ctx context.Context, r *request, key Key) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, nil)
	if err != nil {
		return nil, err
	}
	values := make([]string, 0, 8)
	set := func(name, value string) {
		if value != "" {
			values = append(values, value)
			req.Header[name] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	set("Authorization", key.bearer())
	set("User-Agent", c.o.UserAgent)
	set("Content-Type", r.contentType)
	set("Idempotency-Key", r.key)
	set("Accept", r.accept)
	set("Last-Event-Id", r.last)
	if r.publisher != "" {
		set(weir.HeaderPublisher, r.publisher)
		set(weir.HeaderContiguous, "true")
	}
	return req, nil
}

// do sends a request until it succeeds, fails permanently, or the time in Options.Retry has passed.
// The result unsure is true if the service may have carried out one of the attempts although the
// client got no acknowledgement.
func (c *Client) do(ctx context.Context, r *request, answer any) (unsure bool, err error) {
	return c.repeat(ctx, r, answer, c.o.Retry, nil)
}

func (c *Client) repeat(ctx context.Context, r *request, answer any, limit time.Duration, told func(error, time.Duration)) (unsure bool, err error) {
	start := time.Now()
	for tries := 1; ; tries++ {
		_, err = c.once(ctx, c.transport(), r, answer)
		if err == nil || ctx.Err() != nil || !c.transient(err) {
			return unsure || err != nil && ctx.Err() != nil && lost(err), err
		}
		unsure = unsure || lost(err)
		pause := max(backoff(tries, 5*time.Second), retryAfter(err))
		if time.Since(start)+pause > limit {
			return unsure, err
		}
		if told != nil {
			told(err, pause)
		}
		if wait(ctx, pause) != nil {
			return unsure, err
		}
	}
}

// once sends a request once, decodes the body of the response into answer, and returns the header
// of the response. If answer is nil, the response must have no content (204).
func (c *Client) once(ctx context.Context, t http.RoundTripper, r *request, answer any) (http.Header, error) {
	ctx, p := watch(ctx, c.o.Timeout+r.wait)
	defer p.stop()
	h, err := c.exchange(httptrace.WithClientTrace(ctx, p.trace(&httptrace.ClientTrace{})), t, r, answer, p)
	return h, p.explain(ctx, err)
}

func (c *Client) exchange(ctx context.Context, t http.RoundTripper, r *request, answer any, p *progress) (http.Header, error) {
	resp, err := c.open(ctx, t, r, p)
	if err != nil {
		return nil, err
	}
	b, err := readAnswer(&movingReader{resp.Body, p}, resp.ContentLength)
	// A transport of type single closes its connections itself. If a response of it was read to its
	// end, Close would only cost time: it waits for a goroutine of net/http.
	if _, ok := t.(*single); !ok || err != nil || len(b) > maxAnswer {
		resp.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	if len(b) > maxAnswer {
		return nil, foreign("it is larger than %d bytes", maxAnswer)
	}
	switch answer := answer.(type) {
	case nil:
		if resp.StatusCode != http.StatusNoContent {
			err = fmt.Errorf("its status is %s, and not 204", resp.Status)
		}
	case *fetched:
		err = answer.decode(resp.Header.Get("content-type"), b)
	case *receipt:
		err = answer.check(answer.decode(b))
	case checked:
		err = answer.check(json.Unmarshal(b, answer))
	default:
		err = json.Unmarshal(b, answer)
	}
	if err != nil {
		return nil, foreign("%w", err)
	}
	c.reached.Store(true)
	return resp.Header, nil
}

// readAnswer reads a response of the declared length, or until its end if the length is unknown. It
// returns at most one byte more than maxAnswer.
func readAnswer(r io.Reader, length int64) ([]byte, error) {
	if length <= 0 || length > maxAnswer { // some transports leave 0 for an unknown length
		return io.ReadAll(io.LimitReader(r, maxAnswer+1))
	}
	b := make([]byte, length+1) // one byte more, so that the read reaches the end and the transport can reuse the connection
	n, err := io.ReadFull(r, b)
	if int64(n) == length && (err == io.EOF || err == io.ErrUnexpectedEOF) {
		err = nil
	}
	return b[:n], err
}

// checked is a decoded response that can verify that it is Weir's response to this request.
type checked interface{ check(decoding error) error }

// receipt is an acknowledgement. Its method check returns an error if the acknowledgement is for
// another stream or, if the field seq is not nil, for another sequence.
type receipt struct {
	weir.Ack
	stream weir.StreamID
	seq    *weir.Seq
}

// decode decodes an acknowledgement. If the bytes have exactly the format that Weir writes, decode
// parses them without encoding/json, which would take longer than all other work on the response.
// Otherwise decode uses encoding/json.
func (r *receipt) decode(b []byte) error {
	a := weir.Ack{StreamID: r.stream}
	rest, ok := bytes.CutPrefix(b, []byte(`{"stream_id":"`))
	rest, same := bytes.CutPrefix(rest, []byte(r.stream))
	ok = ok && same
	number := func(name string) (n uint64) {
		after, found := bytes.CutPrefix(rest, []byte(name))
		digits := 0
		for digits < len(after) && digits < 18 && '0' <= after[digits] && after[digits] <= '9' {
			n = n*10 + uint64(after[digits]-'0')
			digits++
		}
		ok = ok && found && digits > 0 && (digits == 1 || after[0] != '0')
		rest = after[digits:]
		return n
	}
	a.Seq = weir.Seq(number(`","seq":`))
	accepted := number(`,"accepted":`)
	a.Accepted = uint32(accepted)
	a.Cursor = weir.Seq(number(`,"cursor":`))
	if !ok || uint64(a.Accepted) != accepted || string(rest) != `,"duplicate":false}` {
		return json.Unmarshal(b, &r.Ack)
	}
	r.Ack = a
	return nil
}

func (r *receipt) check(decoding error) error {
	switch {
	case decoding != nil:
		return decoding
	case r.StreamID != r.stream:
		return errors.New("it acknowledges no batch of this stream")
	case r.seq != nil && r.Seq != *r.seq:
		return fmt.Errorf("it acknowledges batch %d, not %d", r.Seq, *r.seq)
	}
	return nil
}

// backoff returns how long to wait after the n-th attempt: a random time between d/2 and d, where d
// is 100 ms for the first attempt and doubles with each further attempt, but never exceeds longest.
// The time is random, so that clients that were disconnected together do not retry together.
func backoff(n int, longest time.Duration) time.Duration {
	d := longest
	if n < 20 {
		d = min(longest, 100*time.Millisecond<<(n-1))
	}
	return d/2 + weir.Jitter(d/2)
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
func (r *request) attach(req *http.Request, p *progress) {
	req.ContentLength = int64(len(r.body))
	if len(r.body) == 0 {
		req.Body = http.NoBody
		return
	}
	body := func() io.Reader { return &movingReader{bytes.NewReader(r.body), p} }
	if r.sent == nil {
		req.Body = io.NopCloser(body())
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(body()), nil }
		return
	}
	// Without GetBody, no transport can resend the request on its own. A publisher resends batches
	// itself, because they must stay in order.
	b := &sending{Reader: body(), sent: r.sent}
	b.left.Store(int64(len(r.body)))
	req.Body = b
}

// sending is a request body for transports that do not support httptrace. When the transport has
// read the whole body and closed it, the body calls its function sent. If the transport closes the
// body before it has read all of it, the function is not called.
type sending struct {
	io.Reader
	left atomic.Int64 // bytes not read yet; atomic because a transport may close the body during a read
	sent func()
}

func (s *sending) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	s.left.Add(int64(-n))
	return n, err
}

func (s *sending) Close() error {
	if s.left.Load() == 0 {
		s.sent()
	}
	return nil
}
