package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"weir"
)

var errVanished = errors.New("the client has hung up")

// exchange is one HTTP request of a client and its response. The body arrives in pieces, and so
// does the response. The client may hang up before each piece.
type exchange struct {
	client  *client
	server  *server
	ctx     context.Context // ends when the client hangs up
	cancel  context.CancelFunc
	body    []byte
	lacks   int     // how many bytes the body is shorter than its Content-Length
	of      *stream // the shared stream to which the client subscribes
	sub     *subscriber
	piece   []byte    // the part of the body that has arrived and was not read yet
	at      time.Time // when the request began
	begun   bool      // the server has asked for the body
	gone    bool      // the client has hung up
	late    bool      // the body or the response missed a deadline
	overdue int       // number of the step at which the request should have ended; 0: none
	judged  bool      // the caller itself checks refusals
	busy    bool      // the service may still work on an earlier request for the same
	key     *key      // the key of the subscription
	held    *holding  // the stream of another client, if several nodes share a store
	reached weir.Seq  // the last batch that a subscription to the stream of another client got; guarded by model.mu
	started bool      // that subscription has received its first frame; guarded by model.mu
	gated   bool      // the client may wait before it takes a piece of the response, or hang up instead
	until   time.Time // the request must end by then; guarded by model.mu

	mu          sync.Mutex
	read, write time.Time // deadlines
	writing     bool      // the client waits before it takes a piece of the response

	status  int
	refusal weir.Code // the code in an error response, once the method code was called
	header  http.Header
	got     bytes.Buffer
	onData  func(b []byte) (more bool) // called with each piece of the response; the client hangs up if more is false
}

// do sends a request to a server and returns when the handler has returned.
func (c *client) do(g *server, x *exchange, method, path string, header http.Header, body []byte, onData func([]byte) bool) *exchange {
	if x.ctx == nil {
		x.ctx, x.cancel = context.WithCancel(context.Background())
	}
	x.at = time.Now()
	x.client, x.server, x.header, x.body, x.onData = c, g, http.Header{}, body, onData
	g.enter(x)
	c.x = x
	defer func() { c.x = nil; g.closed(x) }()
	u, err := url.Parse(path)
	if err != nil {
		panic(err)
	}
	r := (&http.Request{
		Method: method, URL: u, RequestURI: path, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header,
		Host: "sim", RemoteAddr: "10.0.0." + strconv.Itoa(c.n%250+1) + ":1", ContentLength: int64(len(body) + x.lacks), Body: io.NopCloser(x),
	}).WithContext(x.ctx)
	switch l := g.loop; {
	case !l.takes(x, r):
		x.serve(g.handles(r), r)
	case onData != nil:
		l.follow(x, g.handler, r)
	case !l.serve(x, r):
		x.serve(g.handles(r), r)
	}
	if x.status == 0 {
		x.status = 200
	}
	c.last = " after " + method + " " + path + ": " + strconv.Itoa(x.status)
	if x.gone {
		c.last += ", hung up"
	}
	return x
}

// serve calls the handler. A handler that cuts off its response panics with http.ErrAbortHandler.
func (x *exchange) serve(h http.Handler, r *http.Request) {
	if !unlessAborted(func() { h.ServeHTTP(x, r) }) {
		x.gone = true
	}
}

// String returns the response.
func (x *exchange) String() string {
	if x == nil {
		return "no response"
	}
	return fmt.Sprint(x.status, " ", x.got.String())
}

// code returns the code in an error response.
func (x *exchange) code() weir.Code {
	if x.status >= 400 && x.refusal == "" {
		_, rest, _ := bytes.Cut(x.got.Bytes(), []byte(`"code":"`))
		code, _, _ := bytes.Cut(rest, []byte(`"`))
		x.refusal = weir.Code(code)
	}
	return x.refusal
}

// unmarshal reads JSON. It takes half of the time of encoding/json.
func unmarshal(text []byte, value any) error {
	return json.Unmarshal(text, value, json.MatchCaseInsensitiveNames(true))
}

// leave makes the client hang up.
func (x *exchange) leave() {
	x.gone = true
	x.cancel()
}

// expired reports whether the deadline of the current step has passed: the write deadline while the
// client receives the response, otherwise the read deadline.
func (x *exchange) expired() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	deadline := x.read
	if x.writing {
		deadline = x.write
	}
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

func (x *exchange) waits(writing bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing = writing
}

// Read returns the next piece of the request's body.
func (x *exchange) Read(p []byte) (int, error) {
	x.begun = true
	if x.gone || x.ctx.Err() != nil {
		return 0, errVanished
	}
	if len(x.piece) == 0 {
		if len(x.body) == 0 {
			return 0, io.EOF
		}
		x.waits(false)
		switch err := x.client.step("sends"); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			x.late = true
			return 0, err
		case err != nil:
			x.leave()
			return 0, errVanished
		}
		n := 1 + x.client.rng.IntN(len(x.body))
		x.piece, x.body = x.body[:n], x.body[n:]
	}
	n := copy(p, x.piece)
	x.piece = x.piece[n:]
	return n, nil
}

func (x *exchange) Header() http.Header { return x.header }

func (x *exchange) WriteHeader(status int) { x.status = status }

// Write receives a piece of the response.
func (x *exchange) Write(b []byte) (int, error) {
	if x.gone {
		return 0, errVanished
	}
	if x.onData == nil && !x.gated {
		x.got.Write(b)
		return len(b), nil
	}
	x.waits(true)
	switch err := x.client.step("receives"); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.late = true
		x.leave()
		return 0, err
	case err != nil:
		x.leave()
		return 0, errVanished
	}
	if x.onData == nil {
		x.got.Write(b)
	} else if !x.onData(b) || x.client.w.stops() && x.client.n < watcher {
		x.leave()
	}
	return len(b), nil
}

func (x *exchange) SetReadDeadline(t time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.read = t
	return nil
}

func (x *exchange) SetWriteDeadline(t time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.write = t
	return nil
}

func (x *exchange) Flush()                  {}
func (x *exchange) EnableFullDuplex() error { return nil }
