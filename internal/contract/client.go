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

// request is on its way; options change it.
type Request struct {
	Header http.Header
	Body   io.Reader
	Length int64 // -1: not declared
}

type Option func(*Request)

// key sends another key than the live one; the empty one sends no Authorization at all.
func WithKey(k string) Option {
	return func(r *Request) {
		r.Header.Del("Authorization")
		if k != "" {
			r.Header.Set("Authorization", "Bearer "+k)
		}
	}
}

// header sends a header field once for each value, and not at all for none.
func WithHeader(name string, values ...string) Option {
	return func(r *Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

func body(contentType string, b []byte) Option {
	return func(r *Request) {
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		r.Body, r.Length = bytes.NewReader(b), int64(len(b))
	}
}

func JSONBody(text string) Option { return body("application/json", []byte(text)) }
func RawBody(b []byte) Option     { return body("application/octet-stream", b) }

// undeclared sends the body without Content-Length. It follows the option that sets the body.
func undeclared() Option {
	return func(r *Request) { r.Body, r.Length = io.MultiReader(r.Body), -1 }
}

// announced declares a length and asks whether it may send that much (Expect: 100-continue), which it then never does:
// only a server that needs no body can answer. Without the question a server may take some of the body before it
// answers, to keep the connection.
func announced(contentType string, length int64) Option {
	return func(r *Request) {
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		r.Header.Set("Expect", "100-continue")
		r.Body, r.Length = &silent{over: make(chan struct{})}, length
	}
}

// silent is a body that never comes: reading it blocks until the request is over.
type silent struct {
	over chan struct{}
	once sync.Once
}

func (s *silent) Read([]byte) (int, error) { <-s.over; return 0, io.ErrUnexpectedEOF }
func (s *silent) Close() error             { s.once.Do(func() { close(s.over) }); return nil }

// Answer is a response that was read to its end.
type Answer struct {
	t       *T
	request string // for messages
	Status  int
	Header  http.Header
	Body    []byte
}

// do sends a request with the live key unless an option says otherwise, and checks what holds for every answer.
func (t *T) do(method, path string, options ...Option) *Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp := t.Send(ctx, method, path, options...)
	defer resp.Body.Close()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") && method != http.MethodHead {
		t.Fatalf("%s %s: became a subscription", method, path)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	a := &Answer{t, fmt.Sprintf("%s %s", method, Shorten(path)), resp.StatusCode, resp.Header, b}
	a.universal(strings.HasPrefix(path, "/v1"))
	a.publishes(method, path)
	if strings.HasPrefix(path, "/v1/") {
		if err := t.description.fault(resp, append([]byte{}, b...)); err != nil {
			t.Errorf("%s: %d is not as /openapi.json describes it: %v", a.request, a.Status, err)
		}
	}
	return a
}

// send sends a request; the answer's body is still to be read.
func (t *T) Send(ctx context.Context, method, path string, options ...Option) *http.Response {
	t.Helper()
	resp, err := t.Try(ctx, method, path, options...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, Shorten(path), err)
	}
	return resp
}

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

func Shorten(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

// want checks the status.
func (a *Answer) Want(status int) *Answer {
	a.t.Helper()
	if a.Status != status {
		a.t.Fatalf("%s: got %d %s, want %d", a.request, a.Status, Shorten(string(a.Body)), status)
	}
	return a
}

// refused checks status and code of an error.
func (a *Answer) Refused(status int, code string) *Answer {
	a.t.Helper()
	a.Want(status)
	if got := a.code(); got != code {
		a.t.Fatalf("%s: got %d %s, want code %s", a.request, a.Status, got, code)
	}
	return a
}

// code is the error's code; empty when this is no error.
func (a *Answer) code() string {
	var e envelope
	json.Unmarshal(a.Body, &e)
	return e.Error.Code
}

func (a *Answer) message() string {
	var e envelope
	json.Unmarshal(a.Body, &e)
	return e.Error.Message
}

// into reads the body as a JSON object with exactly the fields of v.
func (a *Answer) into(v any) {
	a.t.Helper()
	if err := Exactly(a.Body, v); err != nil {
		a.t.Fatalf("%s: %v in %s", a.request, err, Shorten(string(a.Body)))
	}
}

func (t *T) Get(path string, options ...Option) *Answer {
	t.Helper()
	return t.do(http.MethodGet, path, options...)
}

func (t *T) Post(path string, options ...Option) *Answer {
	t.Helper()
	return t.do(http.MethodPost, path, options...)
}

func (t *T) Delete(path string, options ...Option) *Answer {
	t.Helper()
	return t.do(http.MethodDelete, path, options...)
}

func ReadAll(resp *http.Response) []byte {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return b
}
