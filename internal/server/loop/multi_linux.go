package loop

import (
	"crypto/tls"
	"net"
	"net/netip"
	"syscall"
	"time"

	"weir/internal/server/loop/h2"
)

// multi is an HTTP/2 connection. It connects the protocol (package h2) with the descriptor of a
// connection, and with the handler. It implements h2.Host.
type multi struct {
	*h2.Conn
	c       *conn
	busy    bool // the connection has requests, or something to send
	queued  bool // the connection is in loop.stirred
	costly  int  // how often the client has requested new keys, or sent other data that is expensive to receive
	pumping bool // the method pump runs
	ended   bool // everything was sent, because the connection is over

	// A connection without requests waits for the next one, and one that is over for its end.
	final      int       // forRequest, forEnd or forNothing
	finalSince time.Time // when that wait began, or when the newest request came
	newest     uint32    // the newest stream at the last call of settle
	blocked    time.Time // since when responses have waited for a window; zero if none does
	oldest     uint32    // the last stream when a request became incomplete
	collects   time.Time // since when a request has been incomplete; zero if none is
}

// mayBeHTTP2 reports whether a connection on which raw has arrived first may speak HTTP/2.
func (c *conn) mayBeHTTP2(raw []byte) bool {
	if c.served || c.l.set.options.Tunnel == nil {
		return false
	}
	return c.greet || c.session == nil && h2.HasPreface(raw)
}

// meet decides who serves a connection that probably speaks HTTP/2. It returns false if more data
// must arrive before that. If net/http has to serve the first request, it gets the connection,
// because frames that pass through a tunnel take more time.
func (c *conn) meet(raw []byte) bool {
	switch h2.Look(raw) {
	case h2.Undecided:
		c.keep(raw)
		return false
	case h2.Plain:
		c.speak(raw)
	default:
		c.handOver(raw)
	}
	return true
}

// hurry is called when the rest of a request has not arrived in time. A client that has sent no
// request at all may wait for the settings of the server.
func (c *conn) hurry() {
	if c.mayBeHTTP2(c.in) && len(c.in) >= len(h2.Preface) {
		c.speak(c.in)
		return
	}
	c.handOver(c.in)
}

// speak makes a connection speak HTTP/2. raw is what has arrived; it begins with the preface.
func (c *conn) speak(raw []byte) {
	c.stopWaiting()
	m := &multi{c: c}
	m.Conn = h2.New(m, &c.l.set.options.HTTP2)
	c.multi, c.served = m, true
	if c.remote == "" {
		c.remote = peer(c.fd).String()
	}
	m.take(raw[len(h2.Preface):])
	m.stir()
}

// stir makes the loop call pump soon. Until then, other requests may have something to send too.
func (m *multi) stir() {
	if !m.queued && !m.pumping {
		m.queued = true
		m.c.l.stirred = append(m.c.l.stirred, m)
	}
}

// pumpStirred serves the HTTP/2 connections that have something to send.
func (l *loop) pumpStirred() {
	list := l.stirred
	l.stirred = l.calm[:0]
	for _, m := range list {
		m.queued = false
		m.pump()
	}
	clear(list)
	l.calm = list
}

// mostReads limits how often pump reads before the loop looks after other connections.
const mostReads = 4

// pump receives and sends as much as possible.
func (m *multi) pump() {
	c := m.c
	if c.fd < 0 {
		return
	}
	m.pumping = true
	m.send()
	for reads := 0; c.fd >= 0 && (c.readable || m.IsBehind()) && !m.IsFull(); reads++ { // even if the client accepts nothing: it may have to send before it does
		if reads == mostReads || reads > 0 && m.IsBehind() {
			m.pumping = false
			m.stir()
			break
		}
		m.receive()
		m.send()
	}
	m.pumping = false
	if c.fd >= 0 {
		m.settle()
	}
}

// send sends what there is to send.
func (m *multi) send() {
	c := m.c
	if c.fd < 0 || len(c.out) > 0 && !c.transmit(c.out, forClient) {
		return
	}
	m.Pull()
	b := m.Take()
	if m.ended {
		return
	}
	if c.session != nil {
		err := net.ErrClosed // if crypto/tls panics
		c.l.try(func() { b, err = c.session.seal(b) })
		if err != nil {
			c.close()
			return
		}
	}
	if len(b) > 0 {
		c.transmit(b, forClient)
	}
}

// receive handles what has arrived, or the rest of what it has read before.
func (m *multi) receive() {
	c := m.c
	if m.IsBehind() {
		m.take(c.in)
		return
	}
	n, more, err := c.read(c.l.buf)
	switch {
	case err == errLater:
		c.readable = c.ended && more
		return
	case err != nil || n == 0:
		c.close()
		return
	}
	c.readable = c.ended || more
	if c.session != nil && c.session.isCostly(len(c.l.buf)) {
		if m.costly++; m.costly > mostCostly {
			c.close()
			return
		}
	}
	raw := c.l.buf[:n]
	if len(c.in) > 0 {
		c.in = append(c.in, raw...)
		raw = c.in
	}
	m.take(raw)
}

// mostCostly is how often a client may request new keys, or send much more than data. Clients that do
// so within reason do it after millions of records.
const mostCostly = 100

// take handles frames. It keeps an incomplete one.
func (m *multi) take(raw []byte) {
	used := m.Receive(raw)
	if used > 0 && !m.IsBehind() {
		m.c.in = nil // so that the incomplete frame is copied, and does not keep the others in memory
	}
	m.c.keep(raw[used:])
}

// settle decides what the connection waits for.
func (m *multi) settle() {
	c, now := m.c, m.c.l.now
	switch rests := m.IsIdle() && len(c.out) == 0; {
	case rests && m.busy:
		m.busy = false
		c.place.Rest(now)
	case !rests && !m.Begin():
		c.close()
		return
	}
	of := forNothing
	switch {
	case m.IsOver():
		of = forEnd
		m.end()
	case m.IsIdle():
		of = forRequest
	}
	active := m.newest != m.Newest()
	if of != m.final || active {
		m.final, m.finalSince, m.newest = of, now, m.Newest()
	}
	if n := lasts(&m.blocked, m.IsBlocked(), now, c.l.waits[forWindow].limit); n > 0 {
		m.GiveUp(n)
		m.stir()
	}
	if m.collects.IsZero() {
		m.oldest = m.Newest()
	}
	if lasts(&m.collects, m.IsCollecting(), now, c.l.waits[forRest].limit) > 0 {
		if m.Expire(m.oldest) {
			m.oldest = m.Newest()
		}
		m.stir()
	}
	isFinal := of != forNothing
	switch {
	case len(c.out) > 0:
		if isFinal && now.Sub(m.finalSince) > c.l.waits[forClient].limit { // a client must not prolong the wait by accepting little
			c.close()
		}
		return // transmit has set the wait
	case of == forRequest && (len(c.in) > 0 && !m.IsBehind() || m.IsWithinHeaders()):
		of = forHead
	case isFinal:
	case m.IsCollecting():
		of = forRest
	case m.IsBlocked():
		of = forWindow
	}
	switch {
	case of == forNothing:
		c.stopWaiting()
	case c.queue == &c.l.waits[of] && !active:
	case isFinal && now.Sub(m.finalSince) > c.l.waits[m.final].limit: // nor must it do so by not opening a window
		m.expire(of)
	default:
		c.l.waits[of].add(c, now)
	}
}

// lasts returns for how many intervals of a certain length a state has lasted since the last result
// that was not 0. The variable since is the time of that result, or the time at which the state began.
func lasts(since *time.Time, is bool, now time.Time, interval time.Duration) int {
	switch {
	case !is:
		*since = time.Time{}
	case since.IsZero():
		*since = now
	case now.Sub(*since) >= interval:
		n := int(now.Sub(*since) / interval)
		*since = now
		return n
	}
	return 0
}

// end tells the client that nothing more will be sent, so that it closes the connection.
func (m *multi) end() {
	c := m.c
	if m.ended || len(c.out) > 0 {
		return
	}
	m.ended = true
	if c.session != nil {
		_, _ = write(c.fd, c.session.end())
	}
	_ = syscall.Shutdown(c.fd, syscall.SHUT_WR)
}

// expire is called when the connection has waited long enough.
func (m *multi) expire(of int) {
	c := m.c
	c.stopWaiting()
	switch {
	case of == forRequest:
		m.Leave()
	case of == forEnd || of == forHead || len(c.out) > 0:
		c.close()
		return
	}
	m.stir() // for forRest and forWindow, settle does what is due
}

// Begin implements h2.Host.
func (m *multi) Begin() bool {
	m.busy = m.busy || m.c.place.Begin()
	return m.busy
}

// Body implements h2.Host.
func (m *multi) Body(n int) []byte { return m.c.l.body(n) }

// Wake implements h2.Host.
func (m *multi) Wake() { m.c.l.post(message{stir: m}) }

// Open implements h2.Host.
func (m *multi) Open(t *h2.Tunnel) {
	c := m.c
	remote, _ := netip.ParseAddrPort(c.remote)
	at := tunnel{Tunnel: t, local: net.TCPAddrFromAddrPort(local(c.fd)), remote: net.TCPAddrFromAddrPort(remote)}
	if c.session == nil {
		c.l.set.options.Tunnel(at)
		return
	}
	c.l.set.options.Tunnel(secureTunnel{at, &c.session.state})
}

// Serve implements h2.Host.
func (m *multi) Serve(s *h2.Stream) bool {
	c := m.c
	later := c.l.set.later
	r := s.Request()
	if later == nil || (s.Scheme() == "https") != (c.session != nil) {
		return false
	}
	r.RemoteAddr = c.remote
	if c.session != nil {
		r.TLS = &c.session.state
	}
	x := c.l.exchange()
	x.c, x.stream, x.memo, x.pooled = c, s, s.Memo(), true
	x.receive(r, s.Body())
	var taken, done bool
	c.l.guard(x, func() { taken, done = later.ServeLater(x, r) })
	switch {
	case x.aborted || done:
		m.respond(x)
		return true
	case taken:
		c.l.unflushed = c.l.unflushed || c.l.set.flusher != nil
		return true
	}
	x.recycle(c.l)
	return false
}

// respond sends the response of an exchange.
func (m *multi) respond(x *exchange) {
	x.request.Body.Close()
	m.stir()
	if x.aborted { // the handler may still use the exchange
		x.stream.Abort()
		return
	}
	lines := x.lines(m.c.l.now)
	if x.close || m.c.l.set.stopping.Load() {
		m.Leave()
	}
	x.stream.Respond(x.status, lines, x.body)
	x.recycle(m.c.l)
}

// tunnel is a tunnel with the addresses of its connection.
type tunnel struct {
	*h2.Tunnel
	local, remote net.Addr
}

func (t tunnel) LocalAddr() net.Addr  { return t.local }
func (t tunnel) RemoteAddr() net.Addr { return t.remote }

// secureTunnel is a tunnel of a connection over TLS. A server of HTTP/2 sets http.Request.TLS to the
// result of ConnectionState.
type secureTunnel struct {
	tunnel
	state *tls.ConnectionState
}

func (t secureTunnel) ConnectionState() tls.ConnectionState { return *t.state }
