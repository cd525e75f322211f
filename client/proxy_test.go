package client_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// fate is the fault that a proxy injects into a connection. Numbers are bytes; 0 disables a fault.
type fate struct {
	up, down int64 // close the connection after this many bytes to the server, or from it
	swallow  int64 // discard this many bytes of responses before closing: requests arrive, responses do not
	stall    bool  // after down, forward nothing more but keep the connection open
}

// proxy forwards connections to a server and injects faults.
type proxy struct {
	url     string
	l       net.Listener
	fates   func(n int) fate // fault of the n-th connection, from 1 on
	work    sync.WaitGroup
	opened  atomic.Int32 // connections so far
	backend atomic.Value // address

	mu    sync.Mutex
	conns map[net.Conn]bool
	over  bool // the test has ended
}

func newProxy(t testing.TB, backend string, fates func(n int) fate) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{url: "http://" + l.Addr().String(), l: l, fates: fates, conns: map[net.Conn]bool{}}
	p.backend.Store(backend)
	p.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f := fate{}
			if n := int(p.opened.Add(1)); p.fates != nil {
				f = p.fates(n)
			}
			p.work.Go(func() { p.carry(c, f) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut(true)
		p.work.Wait()
	})
	return p
}

// cut closes all connections, and with forGood every later one too.
func (p *proxy) cut(forGood bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = p.over || forGood
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) hold(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	if p.over {
		c.Close()
	}
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

func (p *proxy) carry(c net.Conn, f fate) {
	p.hold(c)
	defer p.drop(c)
	s, err := net.Dial("tcp", p.backend.Load().(string))
	if err != nil {
		return
	}
	p.hold(s)
	defer p.drop(s)
	var both sync.WaitGroup
	both.Go(func() {
		some(s, c, f.up)
		c.Close()
		s.Close()
	})
	some(c, s, f.down)
	switch {
	case f.swallow > 0:
		io.CopyN(io.Discard, s, f.swallow)
	case f.stall:
		both.Wait()
	}
	c.Close()
	s.Close()
	both.Wait()
}

// some copies n bytes, or all if n is 0.
func some(to io.Writer, from io.Reader, n int64) {
	if n > 0 {
		from = io.LimitReader(from, n)
	}
	io.Copy(to, from)
}
