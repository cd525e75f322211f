package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
)

// transport connects a real Go client to the simulated service. It sends each request over a
// connection of its own, so requests that are in flight at the same time may overtake each other.
type transport struct {
	c    *client
	made int // number of connections

	mu   sync.Mutex
	free []*client // connections without a request
	end  func()    // ends what the Go client is doing, because the history ends
}

// errLostConnection is what a Go client gets in place of a response that did not arrive.
var errLostConnection = errors.New("the connection was reset")

// connection returns a connection without a request. To the scheduler, each connection is a client.
func (t *transport) connection() *client {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		c := t.free[n-1]
		t.free = t.free[:n-1]
		return c
	}
	t.made++
	if t.made >= connections {
		panic("a Go client has too many requests in flight")
	}
	return clientOf(t.c.w, connections*(1+t.c.n)+t.made)
}

// connections is more than the number of requests that a Go client ever has in flight. The numbers of
// all connections differ, and only those of the watcher are above the number of the watcher.
const connections = 400

func (t *transport) release(c *client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, c)
}

// onEnd sets the function that ends what the Go client is doing.
func (t *transport) onEnd(end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = end
}

// RoundTrip implements http.RoundTripper. It returns when the response begins, or at once when the
// Go client gives up the request. The service may then still be working on it.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	p := &reply{request: r, x: exchange{busy: true}, begun: make(chan error, 1), some: make(chan struct{}, 1)}
	p.x.ctx, p.x.cancel = context.WithCancel(r.Context())
	t.c.w.clients.Go(func() {
		c := t.connection()
		defer t.release(c)
		p.finish(t.carry(c, p, body))
	})
	var err error
	select {
	case err = <-p.begun:
	case <-r.Context().Done():
	}
	if r.Context().Err() != nil { // also if both have happened
		err = r.Context().Err()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	status := cmp.Or(p.x.status, http.StatusOK)
	return &http.Response{
		Status: fmt.Sprint(status, " ", http.StatusText(status)), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: p.x.header, Body: p, ContentLength: -1, Request: r,
	}, nil
}

// carry sends a request and receives the response. It returns io.EOF if the response is complete.
func (t *transport) carry(c *client, p *reply, body []byte) error {
	streams := strings.Contains(p.request.Header.Get("Accept"), "event-stream")
	if c.step("connects") != nil {
		return errLostConnection
	}
	if streams && c.n < watcher && c.w.stops() {
		t.mu.Lock()
		t.end()
		t.mu.Unlock()
		return errLostConnection
	}
	g := c.server()
	if g == nil {
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	var take func([]byte) bool
	if streams {
		take = func(b []byte) bool { return !g.dead.Load() && p.take(b) }
	}
	path := p.request.URL.RequestURI()
	c.do(g, &p.x, p.request.Method, path, p.request.Header, body, take)
	if p.x.gone || p.x.late || g.dead.Load() || p.request.Context().Err() != nil {
		return errLostConnection
	}
	if !streams && c.step("receives the response") != nil {
		return errLostConnection
	}
	if streams && p.x.status < 300 {
		return io.EOF
	}
	if !streams {
		p.take(p.x.got.Bytes())
	}
	judge(c, g, &p.x, p.request.Method, path, body)
	return io.EOF
}

// reply is a response on its way to a Go client.
type reply struct {
	x       exchange
	request *http.Request
	begun   chan error // receives nil when the response begins, or else the error
	some    chan struct{}

	mu     sync.Mutex
	data   []byte // has arrived, but was not read yet
	err    error  // how the response ends; nil while it has not ended
	closed bool   // the Go client wants nothing more
}

// take receives a part of the body. It returns false if the Go client wants nothing more.
func (p *reply) take(b []byte) bool {
	if p.x.status >= 300 && p.x.onData != nil {
		p.x.got.Write(b) // for the method judge
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data = append(p.data, b...)
	p.signal(nil)
	return !p.closed
}

// finish ends the response.
func (p *reply) finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err = err; err == io.EOF {
		err = nil
	}
	p.signal(err)
}

// signal tells the Go client that the response has begun, if it has not been told, and that there is
// something to read.
func (p *reply) signal(err error) {
	select {
	case p.begun <- err:
	default:
	}
	select {
	case p.some <- struct{}{}:
	default:
	}
}

// Read implements io.Reader.
func (p *reply) Read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		n, err := copy(b, p.data), p.err
		p.data = p.data[n:]
		p.mu.Unlock()
		if n > 0 || len(b) == 0 {
			return n, nil
		}
		if gone := p.request.Context().Err(); gone != nil {
			return 0, gone
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-p.some:
		case <-p.request.Context().Done():
		}
	}
}

// Close implements io.Closer. It makes the service notice that the client has hung up.
func (p *reply) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.x.cancel()
	return nil
}

// clientOf returns a client with its own source of chance.
func clientOf(w *world, n int) *client {
	return &client{w: w, n: n, rng: rand.New(rand.NewPCG(w.seed, uint64(n)+2)), subs: map[int]*subscriber{}}
}
