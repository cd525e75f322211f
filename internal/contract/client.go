package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Request is a request that is about to be sent.
type Request struct {
	Header http.Header
	Body   io.Reader
	Length int64 // Content-Length; -1 to send none
}

// Option changes a request before it is sent.
type Option func(*Request)

// WithKey sends k instead of the live key. If k is empty, it sends no Authorization header.
func WithKey(k string) Option {
	return func(r *Request) {
		r.Header.Del("Authorization")
		if k != "" {
			r.Header.Set("Authorization", "Bearer "+k)
		}
	}
}

// WithHeader sends a header field once per value. Without values it removes the field.
func WithHeader(name string, values ...string) Option {
	return func(r *Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

// body sends b with a content type. If contentType is empty, it sends no Content-Type header.
func body(contentType string, b []byte) Option {
	return func(r *Request) {
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		r.Body, r.Length = bytes.NewReader(b), int64(len(b))
	}
}

// JSONBody sends text as application/json.
func JSONBody(text string) Option { return body("application/json", []byte(text)) }

// RawBody sends b as application/octet-stream.
func RawBody(b []byte) Option { return body("application/octet-stream", b) }

// undeclared sends the body without Content-Length. It must come after the option that sets the
// body.
func undeclared() Option {
	return func(r *Request) { r.Body, r.Length = io.MultiReader(r.Body), -1 }
}

// announced declares a body with Expect: 100-continue but never sends the body. The request gets a
// response only if the server does not wait for the body. Without the Expect header, a server may
// read part of the body before it answers, to keep the connection usable.
func announced(contentType string, length int64) Option {
	return func(r *Request) {
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		r.Header.Set("Expect", "100-continue")
		r.Body, r.Length = &silent{over: make(chan struct{})}, length
	}
}

// silent is a body that never arrives: reading it blocks until the request ends.
type silent struct {
	over chan struct{}
	once sync.Once
}

func (s *silent) Read([]byte) (int, error) { <-s.over; return 0, io.ErrUnexpectedEOF }
func (s *silent) Close() error             { s.once.Do(func() { close(s.over) }); return nil }

// Answer is a response with its complete body. If the response was compressed, Body is decompressed.
type Answer struct {
	t       *T
	request string // method and path, for messages
	Status  int
	Header  http.Header
	Body    []byte
}

// do sends a request and applies the checks that hold for every response. It sends the live key
// unless an option sets another one.
func (t *T) do(method, path string, options ...Option) *Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp := t.Send(ctx, method, path, options...)
	defer resp.Body.Close()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") && method != http.MethodHead {
		t.Fatalf("%s %s: the response is a subscription, but the case expects a plain response", method, path)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read the response: %v", method, path, err)
	}
	if method != http.MethodHead {
		if b, err = Decompress(resp.Header.Get("Content-Encoding"), b); err != nil {
			t.Fatalf("%s %s: decompress the response: %v", method, path, err)
		}
	}
	a := &Answer{t, fmt.Sprintf("%s %s", method, Shorten(path)), resp.StatusCode, resp.Header, b}
	manages := strings.HasPrefix(path, "/manage/v1/")
	a.universal(strings.HasPrefix(path, "/v1") || manages)
	a.publishes(method, path)
	if strings.HasPrefix(path, "/v1/") || manages {
		if err := t.description.fault(resp, append([]byte{}, b...)); err != nil {
			t.Errorf("%s: response %d does not match /openapi.json: %v", a.request, a.Status, err)
		}
	}
	return a
}

// Send sends a request and fails the test if there is no response. The caller reads and closes the
// body.
func (t *T) Send(ctx context.Context, method, path string, options ...Option) *http.Response {
	t.Helper()
	resp, err := t.Try(ctx, method, path, options...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, Shorten(path), err)
	}
	return resp
}

// Try sends a request and checks nothing.
func (t *T) Try(ctx context.Context, method, path string, options ...Option) (*http.Response, error) {
	r := Request{Header: http.Header{}}
	WithKey(t.Live)(&r)
	for _, o := range options {
		o(&r)
	}
	req, err := http.NewRequestWithContext(ctx, method, t.BaseURL+path, r.Body)
	if err != nil {
		return nil, err
	}
	req.Header = r.Header
	if r.Body != nil {
		req.ContentLength = r.Length
	}
	return t.client.Do(req)
}

// Shorten cuts a text to a length that fits into a message.
func Shorten(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

// Want fails the test if the response has another status.
func (a *Answer) Want(status int) *Answer {
	a.t.Helper()
	if a.Status != status {
		a.t.Fatalf("%s: got %d %s, want %d", a.request, a.Status, Shorten(string(a.Body)), status)
	}
	return a
}

// Refused fails the test if the response is not an error with this status and code.
func (a *Answer) Refused(status int, code string) *Answer {
	a.t.Helper()
	a.Want(status)
	if got := a.code(); got != code {
		a.t.Fatalf("%s: got %d %s, want code %s", a.request, a.Status, got, code)
	}
	return a
}

// code returns the code of an error, or "" if the response is not an error.
func (a *Answer) code() string {
	var e envelope
	json.Unmarshal(a.Body, &e)
	return e.Error.Code
}

// message returns the message of an error, or "" if the response is not an error.
func (a *Answer) message() string {
	var e envelope
	json.Unmarshal(a.Body, &e)
	return e.Error.Message
}

// decode stores the body in v. It fails the test unless the body is a JSON object with exactly the
// fields of v.
func (a *Answer) decode(v any) {
	a.t.Helper()
	if err := Exactly(a.Body, v); err != nil {
		a.t.Fatalf("%s: %v in %s", a.request, err, Shorten(string(a.Body)))
	}
}

// Get sends a GET request.
func (t *T) Get(path string, options ...Option) *Answer {
	t.Helper()
	return t.do(http.MethodGet, path, options...)
}

// Post sends a POST request.
func (t *T) Post(path string, options ...Option) *Answer {
	t.Helper()
	return t.do(http.MethodPost, path, options...)
}

// Delete sends a DELETE request.
func (t *T) Delete(path string, options ...Option) *Answer {
	t.Helper()
	return t.do(http.MethodDelete, path, options...)
}

// ReadAll reads up to 1 MiB of a response's body, for messages. It ignores errors.
func ReadAll(resp *http.Response) []byte {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return b
}
