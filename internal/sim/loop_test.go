package sim

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	eventloop "weir/internal/server/loop"
)

// loop is the event loop of a process. It does what package server/loop does for a
// real process, but without connections: it begins publishes and creations without waiting for
// their outcome, and holds parked subscriptions. Only its goroutine uses the fields without a lock.
type loop struct {
	w       *world
	g       *server
	name    string
	flushes int
	open    int     // number of requests that have no response yet
	seats   []*seat // parked subscriptions, in the order in which they came
	flush   bool    // the handler has taken requests since the last call of Flush
	ending  bool

	some chan struct{} // holds a value if there may be messages

	mu    sync.Mutex
	inbox []func()
	over  bool // the loop has ended
}

// hasLoop reports whether the processes have an event loop.
func (w *world) hasLoop() bool { return w.has("loops") && w.seed%3 > 0 }

// startLoop starts the event loop of a process, if it has one.
func startLoop(w *world, g *server, name string) {
	if !w.hasLoop() {
		return
	}
	g.loop = &loop{w: w, g: g, name: name, some: make(chan struct{}, 1)}
	w.graves.Go(g.loop.run)
}

// post makes the loop call a function. If the loop has ended, post calls it.
func (l *loop) post(message func()) {
	l.mu.Lock()
	over := l.over
	if !over {
		l.inbox = append(l.inbox, message)
	}
	l.mu.Unlock()
	if over {
		message()
		return
	}
	select {
	case l.some <- struct{}{}:
	default:
	}
}

func (l *loop) run() {
	beat := time.NewTimer(time.Hour)
	defer beat.Stop()
	for !l.ends() {
		beat.Reset(l.nextBeat())
		select { // it does not matter which one is chosen
		case <-l.some:
		case <-beat.C:
		}
		l.handle()
		for l.flush {
			l.flushes++
			if !l.g.dead.Load() { // more requests may arrive meanwhile
				_ = l.w.gate(l.name+" flushes #"+strconv.Itoa(l.flushes), nil)
			}
			l.handle()
			l.flush = false
			l.g.handler.Flush()
			l.handle()
		}
	}
}

// handle handles all messages, and sends heartbeats.
func (l *loop) handle() {
	for {
		l.mu.Lock()
		list := l.inbox
		l.inbox = nil
		l.mu.Unlock()
		if len(list) == 0 {
			break
		}
		for _, message := range list {
			message()
		}
	}
	for _, s := range slices.Clone(l.seats) {
		if !s.pending && !time.Now().Before(s.due) {
			l.proceed(s, true)
		}
	}
}

// nextBeat returns the time until the next heartbeat.
func (l *loop) nextBeat() time.Duration {
	next := time.Hour
	for _, s := range l.seats {
		if !s.pending {
			next = min(next, time.Until(s.due))
		}
	}
	return next
}

// stop makes the loop end when it has nothing left to do.
func (l *loop) stop() { l.post(func() { l.ending = true }) }

// isAtRest reports whether the loop has answered all requests, including those whose clients have hung
// up. The caller has waited until all goroutines are blocked.
func (l *loop) isAtRest() bool { return l == nil || l.open == 0 }

func (l *loop) ends() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = l.ending && l.open == 0 && len(l.seats) == 0 && len(l.inbox) == 0
	return l.over
}

// takes reports whether a client sends a request to the event loop. The others go to a goroutine, as
// if their bodies had arrived slowly.
func (l *loop) takes(x *exchange, r *http.Request) bool {
	return l != nil && x.client.n != watcher && ((r.Method == http.MethodPost || r.Method == http.MethodPut) && x.lacks == 0 && len(x.body) <= 64<<10 || x.onData != nil) && x.client.rng.IntN(4) > 0
}

// serve answers a request whose whole body has arrived. If it returns false, a goroutine must answer
// the request.
func (l *loop) serve(x *exchange, r *http.Request) bool {
	if x.client.step("sends") != nil {
		x.leave()
		return true
	}
	e := l.accept(x, r, nil)
	if l.w.has("hangups") && strings.HasPrefix(r.URL.Path, "/v1/streams/stream") && x.client.rng.IntN(20) == 0 {
		_ = x.client.step("leaves without a response") // the loop goes on with the request
		x.leave()
		return true
	}
	if !e.complete() {
		return false
	}
	x.got.Write(e.got.Bytes())
	return true
}

// accept makes the loop begin a request. If park is not nil, the handler may call it with a parked
// response.
func (l *loop) accept(x *exchange, r *http.Request, park func(parked)) *looped {
	e := &looped{l: l, x: x, left: x.body, header: http.Header{}, done: make(chan bool, 1)}
	whole := r.WithContext(context.Background()) // a real loop does not notice that the client hangs up
	whole.Body = e
	var w http.ResponseWriter = e
	if park != nil {
		w = parking{e, park}
	}
	l.post(func() { l.begin(e, w, whole) })
	return e
}

// complete waits for the response, or for the beginning of a parked one. It returns false if the
// handler did not take the request.
func (e *looped) complete() bool {
	if !<-e.done {
		return false
	}
	x := e.x
	x.begun, x.status, x.header, x.gone = e.begun, e.status, e.header, x.gone || e.aborted
	return true
}

// begin begins a request.
func (l *loop) begin(e *looped, w http.ResponseWriter, r *http.Request) {
	var taken, done bool
	e.guard(func() {
		if isDurable(r) {
			taken, done = l.g.durable.ServeLater(w, r)
		} else {
			taken, done = l.g.handler.ServeLater(w, r)
		}
	})
	if taken && !done && !e.aborted {
		l.open++
		l.flush = true
		return
	}
	e.done <- taken || e.aborted
}

// looped is a request in an event loop, and its response.
type looped struct {
	l       *loop
	x       *exchange
	left    []byte // the rest of the body
	begun   bool   // the handler has asked for the body
	aborted bool
	done    chan bool // receives true when the response is complete, or false if the handler did not take the request

	status int
	header http.Header
	got    bytes.Buffer
	memo   any
}

// guard calls a function of the handler, which must not wait.
func (e *looped) guard(f func()) {
	begun := time.Now()
	e.aborted = !unlessAborted(f) || e.aborted
	if waited := time.Since(begun); waited > 0 {
		e.l.w.violation("%s waited %v for a handler", e.l.name, waited)
	}
}

// unlessAborted calls a function of the handler. It returns false if the function cuts off the
// response.
func unlessAborted(f func()) (ok bool) {
	defer func() {
		if cause := recover(); cause != nil && cause != http.ErrAbortHandler {
			panic(cause)
		}
	}()
	f()
	return true
}

func (e *looped) Ready(f interface{ Finish() }) {
	e.l.post(func() {
		e.guard(f.Finish)
		e.l.open--
		e.done <- true
	})
}

// parking is the response writer for a request whose response can be parked.
type parking struct {
	*looped
	park func(parked)
}

func (p parking) Park(to parked) bool {
	p.park(to)
	return true
}

func (e *looped) Flush()                      {}
func (e *looped) ReuseBody()                  {}
func (e *looped) Memo() *any                  { return &e.memo }
func (e *looped) Close() error                { return nil }
func (e *looped) Header() http.Header         { return e.header }
func (e *looped) WriteHeader(status int)      { e.status = status }
func (e *looped) Write(p []byte) (int, error) { return e.got.Write(p) }

func (e *looped) BeginHead(status int) []byte {
	e.status = status
	return nil
}

func (e *looped) EndHead(head []byte, _ bool) {
	for line := range strings.SplitSeq(strings.TrimSuffix(string(head), "\r\n"), "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		e.header[name] = append(e.header[name], value)
	}
}

func (e *looped) Read(p []byte) (int, error) {
	e.begun = true
	n := copy(p, e.left)
	if e.left = e.left[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Take returns the rest of the body. The handler owns it.
func (e *looped) Take() []byte {
	e.begun = true
	b := bytes.Clone(e.left)
	e.left = nil
	return b
}

// seat is a subscription that an event loop can hold. Its client waits in the method sit.
type seat struct {
	*exchange
	l     *loop
	mail  chan mail // what the loop wants of the client; never full
	moved bool      // the handler has parked the subscription; for the goroutine of the client

	// The loop's goroutine uses these.
	parked  parked // nil if the loop does not hold the subscription
	pending bool   // the client has not accepted yet what it was sent
	due     time.Time

	woken atomic.Bool
}

// parked is a parked subscription.
type parked = eventloop.Parked

// mail is one thing that the client of a parked subscription must do.
type mail struct {
	data   []byte // accept this data
	resume parked // continue the subscription as a goroutine of the service
	last   bool   // the subscription is over
}

// follow serves a subscription, in an event loop if the handler parks it. The loop may also begin the
// subscription.
func (l *loop) follow(x *exchange, h http.Handler, r *http.Request) {
	s := &seat{exchange: x, l: l, mail: make(chan mail, 8)}
	stop := context.AfterFunc(x.ctx, func() {
		why := net.ErrClosed
		if x.late {
			why = os.ErrDeadlineExceeded
		}
		l.post(func() { s.drop(why) })
	})
	defer stop()
	if x.client.rng.IntN(2) == 0 || !s.begin(r) {
		s.guard(func() { h.ServeHTTP(s, r) })
	}
	for over := !s.moved; !over; {
		over = s.sit(<-s.mail)
	}
}

// begin makes the loop begin the subscription. It returns false if the handler did not take it.
func (s *seat) begin(r *http.Request) bool {
	var to parked
	e := s.l.accept(s.exchange, r, func(p parked) { to = p })
	if !e.complete() {
		return false
	}
	if e.got.Len() > 0 && !s.gone {
		_, _ = s.Write(e.got.Bytes()) // if this fails, the client has hung up
	}
	switch {
	case to == nil:
	case e.aborted:
		s.l.post(func() { to.Left(net.ErrClosed) })
	default:
		s.Park(to)
	}
	return true
}

func (s *seat) guard(f func()) {
	if !unlessAborted(f) {
		s.gone = true
	}
}

// sit does what the loop wants of the client. It returns true if the subscription is over.
func (s *seat) sit(m mail) (over bool) {
	if m.resume != nil {
		s.moved = false
		s.guard(func() { m.resume.Resume(s) })
		return !s.moved
	}
	if len(m.data) > 0 && !s.gone {
		if _, err := s.Write(m.data); err == nil && !s.gone {
			s.l.post(func() {
				s.pending = false
				s.l.proceed(s, false)
			})
		}
	}
	return m.last
}

// Park parks the subscription.
func (s *seat) Park(p parked) bool {
	s.moved = true
	s.l.post(func() {
		s.parked, s.pending = p, false
		s.l.seats = append(s.l.seats, s)
		s.rest()
		p.Enter(s)
		if s.ctx.Err() != nil { // the client has hung up meanwhile
			s.drop(net.ErrClosed)
		}
		s.l.proceed(s, false)
	})
	return true
}

// Wake makes the loop look for something to send.
func (s *seat) Wake() {
	if !s.woken.Swap(true) {
		s.l.post(func() { s.l.proceed(s, false) })
	}
}

// Cut closes the connection.
func (s *seat) Cut() { s.l.post(func() { s.drop(net.ErrClosed) }) }

// drop gives up the subscription because the connection was closed.
func (s *seat) drop(why error) {
	if p := s.unseat(); p != nil {
		p.Left(why)
		s.mail <- mail{last: true}
	}
}

// unseat takes the subscription away from the loop. It returns nil if the loop does not hold it.
func (s *seat) unseat() parked {
	p := s.parked
	s.parked = nil
	s.l.seats = slices.DeleteFunc(s.l.seats, func(o *seat) bool { return o == s })
	return p
}

// rest begins the time until the next heartbeat. It is never as long as that of a subscription
// without an event loop: timers that end at the same time would fire in random order.
func (s *seat) rest() {
	idle, _ := s.parked.Times()
	s.due = time.Now().Add(idle + 211*time.Microsecond)
}

// proceed sends what a parked subscription has to send. The parameter idle says that a heartbeat is
// due.
func (l *loop) proceed(s *seat, idle bool) {
	for sent := idle; s.parked != nil && !s.pending; sent = true {
		s.woken.Store(false)
		b, leaves, ends := s.parked.Continue(nil, idle)
		idle = false
		switch {
		case leaves:
			s.mail <- mail{resume: s.unseat()}
		case ends:
			s.unseat().Left(nil)
			s.mail <- mail{data: b, last: true}
		case len(b) > 0:
			_, accept := s.parked.Times()
			s.pending = true
			_ = s.SetWriteDeadline(time.Now().Add(accept))
			s.mail <- mail{data: bytes.Clone(b)}
		default:
			if sent {
				s.rest()
			}
			return
		}
	}
}
