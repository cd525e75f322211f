package loop

import (
	"context"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weir/internal/server/loop/h2"
)

// Loops is a set of event loops, one per core. Each connection belongs to one of them. Only every
// second loop gets new connections, and so requests. Requests that one loop has read are stored
// together, with one sync and without waking another goroutine; with more loops, a publish takes
// more CPU time. All loops get parked responses.
type Loops struct {
	options  Options
	later    Later   // the handler, if it implements Later; otherwise nil
	flusher  Flusher // the handler, if it implements Flusher; otherwise nil
	all      []*loop
	added    atomic.Uint32 // number of new connections so far
	parked   atomic.Uint32 // number of parked responses so far
	stopping atomic.Bool
	work     sync.WaitGroup
	handlers handlers
}

// New starts the loops.
func New(o Options) (*Loops, error) {
	ls := &Loops{options: o, handlers: handlers{exchanges: make(chan *exchange)}}
	ls.later, _ = o.Handler.(Later)
	ls.flusher, _ = o.Handler.(Flusher)
	for range runtime.GOMAXPROCS(0) {
		l, err := newLoop(ls)
		if err != nil {
			ls.Stop()
			return nil, err
		}
		ls.all = append(ls.all, l)
	}
	return ls, nil
}

// Add gives a connection to a loop. The loop takes over the connection's descriptor, so the caller
// must not use the connection any more. The parameter s is the session on the connection, whose
// handshake is complete, or nil if the connection is not encrypted.
func (ls *Loops) Add(from *net.TCPConn, place Place, s *Session) {
	c := &conn{place: place, l: ls.serving()}
	c.remote = from.RemoteAddr().String()
	if err := c.own(from); err != nil {
		place.Leave()
		return
	}
	if c.session = s; s != nil {
		s.enter(c.receive)
		c.readable = true // the session may have read a request together with the end of the handshake
	}
	c.l.post(message{add: c})
}

// serving and parking return the loops in turn: for a new connection, and for a parked response. Each
// has a counter of its own. With a common counter, a subscriber would take two turns, one for its
// connection and one for its response, and every second loop could get all responses.
func (ls *Loops) serving() *loop {
	return ls.all[ls.added.Add(1)%uint32((len(ls.all)+1)/2)]
}

func (ls *Loops) parking() *loop { return ls.all[ls.parked.Add(1)%uint32(len(ls.all))] }

// own takes over the descriptor of a connection.
func (c *conn) own(from *net.TCPConn) error {
	defer from.Close()
	c.fd = -1
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { c.fd, failed = duplicate(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// Stop closes the connections that have no request. The other connections are closed after the
// response to their current request. A connection that is added later is closed at once.
func (ls *Loops) Stop() {
	ls.stopping.Store(true)
	for _, l := range ls.all {
		l.post(message{stop: true})
	}
}

// Wait waits for requests in flight, after Stop was called. If the context ends first, Wait closes
// the connections of these requests and returns the error of the context. It then does not wait for
// their handlers.
func (ls *Loops) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { ls.work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	var cut atomic.Bool
	for _, l := range ls.all {
		l.post(message{cut: &cut})
	}
	<-done
	if !cut.Load() {
		return nil
	}
	return ctx.Err()
}

// loop serves some of the connections. Only its goroutine (run) uses the fields, except those that
// mu guards.
type loop struct {
	set    *Loops
	poller poller
	conns  []*conn // indexed by descriptor
	open   int     // number of connections
	parser parser
	buf    []byte // receives what a connection has sent
	now    time.Time
	ending bool // Stop was called

	severed bool // all connections were cut off

	unflushed bool // the handler has taken requests since the last call of Flush
	passes    int  // how often the loop has looked for more requests since then

	waits  [waits]queue
	spare  []message
	used   []*exchange // for reuse
	bodies [][]byte    // for reuse
	woken  []*conn     // connections whose parked responses (see Parked) may have something to send, or are due for a sign of life
	begun  int         // number of elements of woken that were already handled

	stirred []*multi // HTTP/2 connections that may have something to send
	calm    []*multi // for reuse

	mu     sync.Mutex
	inbox  []message           // guarded by mu
	asleep bool                // the method run waits, or is about to wait; guarded by mu
	over   bool                // the method run has returned; guarded by mu
	guests map[*guest]struct{} // parked responses that are on their way to the loop, or in a goroutine; guarded by mu
}

// message is something that another goroutine asks of a loop. One field is set.
type message struct {
	exchange *exchange // the response can be completed
	add      *conn
	evict    *conn
	wake     *conn  // the parked response may have something to send
	stir     *multi // the connection may have something to send
	drop     *conn  // close the connection of the parked response
	stop     bool
	cut      *atomic.Bool // close all connections, and set this value to true if there were any
}

func newLoop(ls *Loops) (*loop, error) {
	l := &loop{set: ls, buf: make([]byte, maxHead+MaxBody), now: time.Now()}
	if err := l.poller.open(); err != nil {
		return nil, err
	}
	l.waits[forHead].limit, l.waits[forRequest].limit = ls.options.Head, ls.options.Idle
	l.waits[forRest].limit, l.waits[forClient].limit = restTime, ls.options.Idle
	l.waits[forEnd].limit, l.waits[forWindow].limit = endTime, ls.options.Answer/h2.Patience
	ls.handlers.loops.Add(1)
	ls.work.Go(func() { defer ls.handlers.leave(); l.run() })
	return l, nil
}

// post sends a message to the loop. If the loop has ended, post itself calls Finish of the
// exchange, or closes the connection that was to be added. It ignores all other messages.
func (l *loop) post(m message) {
	l.mu.Lock()
	over := l.over
	if !over {
		l.inbox = append(l.inbox, m)
	}
	wake := l.asleep
	l.asleep = false
	l.mu.Unlock()
	switch {
	case over && m.exchange != nil:
		if f := m.exchange.finisher; f != nil {
			l.try(f.Finish)
		}
		m.exchange.leave()
	case over && m.add != nil:
		m.add.leave(net.ErrClosed)
		syscall.Close(m.add.fd)
		m.add.place.Leave()
	case wake:
		l.poller.wake()
	}
}

// run serves the connections until Stop was called and all of them are closed.
func (l *loop) run() {
	defer l.poller.close()
	for {
		l.wait()
		l.now = time.Now()
		l.handleEvents()
		l.handleMessages()
		l.handleWoken()
		l.expire()
		l.pumpStirred()
		l.flush()
		if l.ending && l.open == 0 && l.end() {
			return
		}
	}
}

// wait waits for events, for messages, or until the time of a waiting connection is up. It does not
// wait if there is something to do already.
func (l *loop) wait() {
	l.poller.setAlarm(l.firstDue()) // before l.asleep is set: afterwards it would undo the wake-up of a message
	l.mu.Lock()
	l.asleep = len(l.inbox) == 0 && len(l.woken) == 0 && len(l.stirred) == 0 && !l.unflushed
	asleep := l.asleep
	l.mu.Unlock()
	if !asleep {
		l.report(l.poller.look())
		return
	}
	l.report(l.poller.wait())
	l.mu.Lock()
	l.asleep = false
	l.mu.Unlock()
}

// report logs an error of the poller.
func (l *loop) report(err error) {
	if err != nil {
		l.set.options.Logger.Error("waiting for connections failed", "error", err)
	}
}

// firstDue returns the time at which the first of all waits of connections ends. It is zero if no
// connection waits.
func (l *loop) firstDue() (due time.Time) {
	for i := range l.waits {
		if c := l.waits[i].first; c != nil && (due.IsZero() || c.due.Before(due)) {
			due = c.due
		}
	}
	return due
}

// mostPasses limits how often a loop looks for more requests before it calls Flush.
const mostPasses = 2

// flush calls Flush if the handler has taken requests. If the loop has just handled events, it first
// looks for more requests: a sync for many costs little more than a sync for one.
func (l *loop) flush() {
	if !l.unflushed {
		return
	}
	if l.passes++; l.passes <= mostPasses && l.poller.ready > 0 && !l.ending {
		return
	}
	l.unflushed, l.passes = false, 0
	l.set.flusher.Flush()
}

// end marks the loop as ended, unless it has messages or guests. It reports whether the loop has
// ended.
func (l *loop) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = len(l.inbox) == 0 && len(l.guests) == 0
	return l.over
}

// handleEvents handles what has happened on connections.
func (l *loop) handleEvents() {
	for _, e := range l.poller.events[:l.poller.ready] {
		if fd := int(e.Fd); fd < len(l.conns) && l.conns[fd] != nil {
			l.conns[fd].handle(e.Events)
		}
	}
}

// handleMessages handles the messages of other goroutines.
func (l *loop) handleMessages() {
	l.mu.Lock()
	list := l.inbox
	l.inbox = l.spare[:0]
	l.mu.Unlock()
	for i := range list {
		switch m := &list[i]; {
		case m.exchange != nil:
			l.finish(m.exchange)
		case m.add != nil:
			l.add(m.add)
		case m.evict != nil:
			if c := m.evict; c.fd >= 0 && c.isIdle() {
				c.close()
			}
		case m.wake != nil:
			l.woken = append(l.woken, m.wake)
		case m.stir != nil:
			m.stir.stir()
		case m.drop != nil:
			if c := m.drop; c.parked != nil {
				c.close()
			}
		case m.stop:
			l.stop()
		case m.cut != nil:
			l.cut(m.cut)
		}
	}
	clear(list)
	l.spare = list
}

// wokenAtOnce is the maximum number of parked responses that one call of handleWoken continues.
const wokenAtOnce = 32

// handleWoken continues some of the parked responses that were woken or are due for a sign of life. The
// others wait until the loop has looked for requests again. Otherwise a batch for thousands of
// subscribers would delay all publishers.
func (l *loop) handleWoken() {
	for _, c := range l.woken[l.begun:min(l.begun+wokenAtOnce, len(l.woken))] {
		l.begun++
		idle := c.idle
		c.idle = false
		c.proceed(idle)
	}
	if 2*l.begun >= len(l.woken) { // do not wait until the list is empty: under load it may never be
		n := copy(l.woken, l.woken[l.begun:])
		clear(l.woken[n:])
		l.woken, l.begun = l.woken[:n], 0
	}
}

// add begins to watch a connection.
func (l *loop) add(c *conn) {
	const events = syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | edgeTriggered
	for c.fd >= len(l.conns) {
		l.conns = append(l.conns, make([]*conn, max(64, len(l.conns)))...)
	}
	l.conns[c.fd] = c
	l.open++
	if l.severed || l.ending && c.parked == nil {
		c.close()
		return
	}
	c.place.Enter(c)
	if err := syscall.EpollCtl(l.poller.inner, syscall.EPOLL_CTL_ADD, c.fd, &syscall.EpollEvent{Events: events, Fd: int32(c.fd)}); err != nil {
		l.set.options.Logger.Warn("watching a connection failed", "error", err)
		c.close()
		return
	}
	if c.parked != nil {
		c.enter()
		return
	}
	c.greet = c.session != nil && c.session.state.NegotiatedProtocol == "h2"
	c.advance()
}

// Evict implements Holder.
func (c *conn) Evict() { c.l.post(message{evict: c}) }

// edgeTriggered is EPOLLET as a positive number. With it, the kernel reports an event only once,
// even if the loop does not handle it at once.
const edgeTriggered = 1 << 31

// stop closes the connections without a request.
func (l *loop) stop() {
	l.ending = true
	for _, c := range l.conns {
		if c == nil {
			continue
		}
		switch {
		case c.multi != nil:
			c.multi.Leave()
			c.multi.stir()
		case c.isIdle():
			c.close()
		}
		c.last = true
	}
}

// cut closes all connections.
func (l *loop) cut(busy *atomic.Bool) {
	l.ending, l.severed = true, true
	for _, c := range l.conns {
		if c != nil {
			busy.Store(true)
			c.close()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for g := range l.guests {
		busy.Store(true)
		g.cut()
	}
	clear(l.guests)
}

// finish completes a response and sends it.
func (l *loop) finish(x *exchange) {
	answered := x.stream != nil && x.aborted // the handler has panicked before
	if f := x.finisher; f != nil {
		x.finisher = nil
		l.guard(x, f.Finish)
	}
	c := x.c
	if c.fd < 0 { // the connection was cut off
		x.leave()
		return
	}
	if x.stream != nil {
		if !answered {
			c.multi.respond(x)
		}
		return
	}
	c.send(x)
	c.advance()
}

// expire ends the waits whose time is up.
func (l *loop) expire() {
	for i := range l.waits {
		q := &l.waits[i]
		for c := q.first; c != nil && !c.due.After(l.now); c = q.first {
			if c.multi != nil {
				c.multi.expire(i)
				continue
			}
			switch i {
			case forRest:
				c.hurry()
			case forBeat:
				c.stopWaiting()
				c.idle = true
				l.woken = append(l.woken, c)
			case forReader:
				c.leave(os.ErrDeadlineExceeded)
				c.close()
			default:
				c.close()
			}
		}
	}
}
