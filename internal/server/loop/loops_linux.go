package loop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Loops is a set of event loops, one per core, that share connections among them.
type Loops struct {
	options  Options
	later    Later // the handler, if it implements Later; otherwise nil
	all      []*loop
	next     atomic.Uint32
	stopping atomic.Bool
	work     sync.WaitGroup
}

// New starts the loops.
func New(o Options) (*Loops, error) {
	ls := &Loops{options: o}
	ls.later, _ = o.Handler.(Later)
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
// must not use the connection any more. The returned function closes the connection if it has no
// request, and may be called from any goroutine.
func (ls *Loops) Add(from *net.TCPConn, place Place) (evict func()) {
	c := &conn{place: place, fd: -1, remote: from.RemoteAddr().String()}
	c.l = ls.all[ls.next.Add(1)%uint32(len(ls.all))]
	raw, err := from.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { c.fd, err = duplicate(int(fd)) })
	}
	from.Close()
	if c.fd < 0 || err != nil {
		place.Leave()
		return func() {}
	}
	c.l.post(message{add: c})
	return func() { c.l.post(message{evict: c}) }
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

// loop serves some of the connections. Only its goroutine (run) uses the fields without a comment.
type loop struct {
	set    *Loops
	ep     int // the epoll descriptor
	file   *os.File
	events [256]syscall.EpollEvent
	conns  []*conn // by descriptor
	open   int     // number of connections
	parser parser
	buf    []byte // receives what a connection has sent
	now    time.Time
	ending bool // Stop was called

	waits [waits]queue
	timer *time.Timer
	rings time.Time // when the timer fires; zero if it is not running

	signal chan struct{} // wakes run; holds one signal

	mu    sync.Mutex
	inbox []message // guarded by mu
	over  bool      // run has returned; guarded by mu
	spare []message
}

// message is something that another goroutine asks of a loop. One field is set.
type message struct {
	exchange *exchange // the response can be completed
	add      *conn
	evict    *conn
	stop     bool
	cut      *atomic.Bool // close all connections, and set this value if one had a request
}

func newLoop(ls *Loops) (*loop, error) {
	ep, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll descriptor: %w", err)
	}
	l := &loop{set: ls, ep: ep, buf: make([]byte, 64<<10), signal: make(chan struct{}, 1), now: time.Now(), timer: time.NewTimer(time.Hour)}
	l.rings = l.now.Add(time.Hour)
	l.waits[forHead].limit, l.waits[forRequest].limit = ls.options.Head, ls.options.Idle
	l.waits[forRest].limit, l.waits[forClient].limit = restTime, ls.options.Idle
	err = syscall.SetNonblock(ep, true) // otherwise NewFile does not register the descriptor with the runtime
	l.file = os.NewFile(uintptr(ep), "epoll")
	if err != nil {
		l.file.Close()
		return nil, fmt.Errorf("prepare an epoll descriptor: %w", err)
	}
	ls.work.Go(l.run)
	ls.work.Go(l.watch)
	return l, nil
}

// watch wakes the loop when one of its connections has an event. The runtime's own poller watches
// the epoll descriptor of the loop, so no thread is blocked while the loop waits. A thread that
// blocks in epoll_wait gives up its processor, and has to get one again before it can go on.
func (l *loop) watch() {
	raw, err := l.file.SyscallConn()
	for err == nil {
		waited := false
		err = raw.Read(func(uintptr) bool {
			if waited {
				return true
			}
			waited = true
			return false
		})
		l.wake()
	}
}

func (l *loop) wake() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// post sends a message to the loop. If the loop has ended, post does what the loop would have done,
// without a connection.
func (l *loop) post(m message) {
	l.mu.Lock()
	over := l.over
	if !over {
		l.inbox = append(l.inbox, m)
	}
	first := len(l.inbox) == 1
	l.mu.Unlock()
	switch {
	case over && m.exchange != nil && m.exchange.finisher != nil:
		m.exchange.finisher.Finish()
	case over && m.add != nil:
		syscall.Close(m.add.fd)
		m.add.place.Leave()
	case !over && first:
		l.wake()
	}
}

// run serves the connections until Stop was called and all of them are closed.
func (l *loop) run() {
	defer l.file.Close() // ends watch
	defer l.timer.Stop()
	for {
		l.now = time.Now()
		busy := l.handleEvents()
		busy = l.handleMessages() || busy
		l.expire()
		if l.ending && l.open == 0 && l.end() {
			return
		}
		if !busy {
			l.sleep()
		}
	}
}

// end marks the loop as ended, unless it has messages.
func (l *loop) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = len(l.inbox) == 0
	return l.over
}

// handleEvents handles what has happened on connections. It returns false if nothing has happened.
func (l *loop) handleEvents() bool {
	n, err := syscall.EpollWait(l.ep, l.events[:], 0)
	if err != nil && !errors.Is(err, syscall.EINTR) {
		l.set.options.Logger.Error("waiting for connections failed", "error", err)
	}
	for _, e := range l.events[:max(n, 0)] {
		if fd := int(e.Fd); fd < len(l.conns) && l.conns[fd] != nil {
			l.conns[fd].handle(e.Events)
		}
	}
	return n > 0
}

// handleMessages handles the messages of other goroutines. It returns false if there are none.
func (l *loop) handleMessages() bool {
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
		case m.stop:
			l.stop()
		case m.cut != nil:
			l.cut(m.cut)
		}
	}
	clear(list)
	l.spare = list
	return len(list) > 0
}

// add begins to watch a connection.
func (l *loop) add(c *conn) {
	const events = syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | edgeTriggered
	for c.fd >= len(l.conns) {
		l.conns = append(l.conns, make([]*conn, max(64, len(l.conns)))...)
	}
	l.conns[c.fd] = c
	l.open++
	if l.ending {
		c.close()
		return
	}
	if err := syscall.EpollCtl(l.ep, syscall.EPOLL_CTL_ADD, c.fd, &syscall.EpollEvent{Events: events, Fd: int32(c.fd)}); err != nil {
		l.set.options.Logger.Warn("watching a connection failed", "error", err)
		c.close()
		return
	}
	l.waits[forHead].add(c, l.now)
}

// edgeTriggered is EPOLLET without its sign: an event is reported once, not until it is handled.
const edgeTriggered = 1 << 31

// stop closes the connections without a request.
func (l *loop) stop() {
	l.ending = true
	for _, c := range l.conns {
		if c == nil {
			continue
		}
		if c.isIdle() {
			c.close()
		}
		c.last = true
	}
}

// cut closes all connections.
func (l *loop) cut(busy *atomic.Bool) {
	l.ending = true
	for _, c := range l.conns {
		if c != nil {
			busy.Store(true)
			c.close()
		}
	}
}

// finish completes a response and sends it.
func (l *loop) finish(x *exchange) {
	if f := x.finisher; f != nil {
		x.finisher = nil
		l.guard(x, f.Finish)
	}
	c := x.c
	if c.fd < 0 {
		return // the connection was cut off
	}
	c.send(x)
	c.advance()
}

// expire ends the waits whose time is up.
func (l *loop) expire() {
	for i := range l.waits {
		q := &l.waits[i]
		for c := q.first; c != nil && !c.due.After(l.now); c = q.first {
			if i == forRest {
				c.handOver(c.in)
			} else {
				c.close()
			}
		}
	}
}

// sleep waits for an event, a message or the end of a wait.
func (l *loop) sleep() {
	var due time.Time
	for i := range l.waits {
		if c := l.waits[i].first; c != nil && (due.IsZero() || c.due.Before(due)) {
			due = c.due
		}
	}
	if !due.IsZero() && (l.rings.IsZero() || due.Before(l.rings)) {
		l.timer.Reset(time.Until(due))
		l.rings = due
	}
	select {
	case <-l.signal:
	case <-l.timer.C:
		l.rings = time.Time{}
	}
}
