package faultnet

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure what a proxy carries and where it forwards to.
type Options struct {
	// Backend is the address of the server: host and port. SetBackend changes it.
	Backend string

	// HTTP makes the proxy an HTTP gateway. A gateway answers requests itself or sends them to the
	// backend, over connections of its own and in any order. Without HTTP the proxy forwards bytes.
	HTTP bool

	// HTTP1 makes a gateway refuse HTTP/2.
	HTTP1 bool

	// TLS is the configuration of a gateway that speaks TLS to its clients; see [Certificate]. A
	// gateway always speaks cleartext to the backend.
	TLS *tls.Config `json:"-"`

	// Cut, if not nil, returns how the n-th connection ends. The first connection has n = 1.
	Cut func(n int) Cut `json:"-"`

	// UDP makes the proxy carry UDP packets, for HTTP/3.
	UDP bool

	// Seed determines which packets are lost or reordered.
	Seed uint64
}

// Cut ends a connection after an exact number of bytes. A field that is 0 has no effect.
type Cut struct {
	Up, Down int64 // the connection is closed after Up bytes to the server, or after Down bytes from the server
	Swallow  int64 // after Down bytes, discard this many more bytes from the server, then close the connection: requests still arrive, responses do not
	Stall    bool  // after Down bytes, forward nothing more from the server, but keep the connection open
}

// Proxy is a running proxy. Its methods may be called concurrently.
type Proxy struct {
	o       Options
	address string
	backend atomic.Pointer[string]
	opened  atomic.Int64
	up      pipe // from clients to the backend
	down    pipe
	done    chan struct{} // closed by Close
	work    sync.WaitGroup
	close   []func()

	mu      sync.Mutex
	now     Conditions
	changed chan struct{} // closed, and replaced, by Set
	conns   map[net.Conn]bool
	closed  bool
}

// Start starts a proxy on a free port of 127.0.0.1. The caller must close the proxy.
func Start(o Options) (*Proxy, error) {
	p := &Proxy{o: o, done: make(chan struct{}), changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.backend.Store(&o.Backend)
	if o.UDP {
		if err := p.startUDP(); err != nil {
			return nil, err
		}
		return p, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.address = l.Addr().String()
	p.close = append(p.close, func() { l.Close() })
	target := p.dial
	if o.HTTP {
		if target, err = p.startGateway(); err != nil {
			l.Close()
			return nil, err
		}
	}
	p.work.Go(func() { p.accept(l, target) })
	return p, nil
}

// Address returns the host and port that clients connect to.
func (p *Proxy) Address() string { return p.address }

// SetBackend changes the address of the server for new connections.
func (p *Proxy) SetBackend(address string) { p.backend.Store(&address) }

// Opened returns the number of connections that clients have opened.
func (p *Proxy) Opened() int { return int(p.opened.Load()) }

// Sent returns the number of bytes that the proxy has taken from clients.
func (p *Proxy) Sent() int64 { return p.up.carried.Load() }

// Set changes the conditions. The change also applies to open connections.
func (p *Proxy) Set(c Conditions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = c
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) conditions() (Conditions, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, p.changed
}

// Reset resets all open connections: client and server get an error, and data in flight is lost.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c, ok := c.(*net.TCPConn); ok {
			c.SetLinger(0)
		}
		c.Close()
	}
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.done)
	p.Reset()
	for _, f := range p.close {
		f()
	}
	p.work.Wait()
}

// hold registers an open connection, so that Reset can find it. It returns false if the proxy is
// closed.
func (p *Proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	return !p.closed
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

func (p *Proxy) dial() (net.Conn, error) {
	return net.DialTimeout("tcp", *p.backend.Load(), 10*time.Second)
}

func (p *Proxy) accept(l net.Listener, target func() (net.Conn, error)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		n := p.opened.Add(1)
		if now, _ := p.conditions(); now.Refuse {
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
			continue
		}
		var cut Cut
		if p.o.Cut != nil {
			cut = p.o.Cut(int(n))
		}
		p.work.Go(func() { p.carry(c, target, cut) })
	}
}

// carry forwards the data of a connection until either side closes the connection.
func (p *Proxy) carry(c net.Conn, target func() (net.Conn, error), cut Cut) {
	defer p.drop(c)
	if !p.hold(c) {
		return
	}
	// The buffer is small, so that the client soon notices how slow the link is.
	c.(*net.TCPConn).SetReadBuffer(64 << 10)
	s, err := target()
	if err != nil {
		return
	}
	defer p.drop(s)
	if !p.hold(s) {
		return
	}
	end := func() { c.Close(); s.Close() }
	var both sync.WaitGroup
	both.Go(func() {
		p.copy(s, c, &p.up, cut.Up)
		end()
	})
	p.copy(c, s, &p.down, cut.Down)
	switch {
	case cut.Swallow > 0:
		io.CopyN(io.Discard, s, cut.Swallow)
	case cut.Stall:
		both.Wait()
	}
	end()
	both.Wait()
}

// copy forwards data under the current conditions: at most limit bytes, or everything if limit is
// 0.
func (p *Proxy) copy(to, from net.Conn, by *pipe, limit int64) {
	b := make([]byte, 16<<10)
	for total := int64(0); limit == 0 || total < limit; {
		if !p.open() {
			return
		}
		now, _ := p.conditions()
		room := len(b)
		if now.Rate > 0 {
			room = max(1, min(room, now.Rate/20))
		}
		if limit > 0 {
			room = int(min(int64(room), limit-total))
		}
		n, err := from.Read(b[:room])
		total += int64(n)
		by.carried.Add(int64(n))
		if n > 0 {
			now, _ = p.conditions()
			if !p.open() || !pause(p.done, by.reserve(n, now.Rate)+now.Delay) {
				return
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// open returns true as soon as the condition BlackHole is not set. It returns false if the proxy is
// closed before that.
func (p *Proxy) open() bool {
	for {
		now, changed := p.conditions()
		if !now.BlackHole {
			return true
		}
		select {
		case <-changed:
		case <-p.done:
			return false
		}
	}
}

// pipe is one direction of the link. All connections share the rate of the pipe.
type pipe struct {
	carried atomic.Int64
	mu      sync.Mutex
	free    time.Time // when the data in flight will have arrived
}

// reserve adds n bytes to the data in flight and returns how long they take to arrive.
func (l *pipe) reserve(n, rate int) time.Duration {
	if rate <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(n) * time.Second / time.Duration(rate))
	return l.free.Sub(now)
}
