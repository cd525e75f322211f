package loop

import (
	"strconv"
	"syscall"
)

// Wake makes the loop ask the parked response (one that continues after its handler has returned,
// see Parked) for what it has to send. It may be called from any goroutine. While the client
// accepts no data, only the first call sends a message.
func (c *conn) Wake() {
	if !c.woken.Swap(true) {
		c.l.post(message{wake: c})
	}
}

// Cut makes the loop close the connection, if the response is still parked. It may be called from
// any goroutine.
func (c *conn) Cut() { c.l.post(message{drop: c}) }

// park sends the beginning of a parked response, and gives the connection to the loop that continues
// the response. Goroutines may refer to a conn at any time, and its loop never changes, so the
// other loop gets a new one.
func (c *conn) park(x *exchange) {
	to := c.l.set.parking()
	g := &guest{l: to}
	if to != c.l && !to.invite(g) {
		to = c.l // the other loop has ended; this one does not end before its connections
	}
	p := &conn{l: to, place: c.place, last: x.isLast(), served: true, parked: x.parked}
	if c.transmit(x.encode(c.l.now, p.last), forReader); c.fd < 0 {
		x.leave()
	} else {
		p.in, p.out = c.in, c.out
		p.fd = c.forget()
		syscall.EpollCtl(c.l.poller.inner, syscall.EPOLL_CTL_DEL, p.fd, nil)
		to.post(message{add: p})
		if x.pooled {
			x.recycle(c.l)
		}
	}
	if to != c.l {
		g.dismiss()
	}
}

// enter begins to serve a parked response.
func (c *conn) enter() {
	idle, accept := c.parked.Times()
	c.l.waits[forBeat].limit, c.l.waits[forReader].limit = idle, accept
	if !c.l.try(func() { c.parked.Enter(c) }) {
		c.close()
		return
	}
	if rest := c.out; len(rest) > 0 {
		c.out = nil
		c.transmit(rest, forReader)
	}
	c.woken.Store(true)
	c.l.woken = append(c.l.woken, c) // served a few at a time, like those that were woken, because many clients may reconnect at once
}

// handleParked handles events of a connection with a parked response. Data that the client sends
// stays in the kernel until the response is complete. A client that has closed its sending side
// counts as gone, as in net/http.
func (c *conn) handleParked() {
	if c.ended {
		c.close()
		return
	}
	if len(c.out) > 0 {
		c.transmit(c.out, forReader)
	}
	c.proceed(false)
}

// chunkHead is the space that the loop leaves in front of the data of a chunk.
const chunkHead = len("ffffffff\r\n")

// lastChunk ends a chunked response.
const lastChunk = "0\r\n\r\n"

// proceed sends what a parked response has to send, until there is nothing more or the client
// accepts no more. The parameter idle says that the client must get a sign of life.
func (c *conn) proceed(idle bool) {
	for sent := idle; c.parked != nil && len(c.out) == 0; sent = true {
		c.woken.Store(false) // before Continue looks for something to send, so that no Wake is missed
		var b []byte
		var leaves, ends bool
		if !c.l.try(func() { b, leaves, ends = c.parked.Continue(c.l.buf[:chunkHead], idle) }) {
			c.close()
			return
		}
		idle = false
		switch {
		case leaves:
			c.resume()
			return
		case ends:
			c.leave(nil)
			c.last = c.last || c.l.set.stopping.Load()
			c.write(append(chunk(b), lastChunk...))
			c.advance()
			return
		case len(b) == chunkHead:
			if q := &c.l.waits[forBeat]; sent || c.queue != q {
				q.add(c, c.l.now)
			}
			return
		}
		c.transmit(chunk(b), forReader)
	}
}

// chunk completes a chunk of a response. b has chunkHead bytes and then the data.
func chunk(b []byte) []byte {
	var room [chunkHead]byte
	head := append(strconv.AppendUint(room[:0], uint64(len(b)-chunkHead), 16), '\r', '\n')
	from := chunkHead - len(head)
	copy(b[from:], head)
	return append(b[from:], '\r', '\n')
}

// leave tells a parked response that the loop has given it up. If no response is parked, leave does
// nothing.
func (c *conn) leave(err error) {
	if p := c.parked; p != nil {
		c.parked = nil
		c.l.try(func() { p.Left(err) })
	}
}

// resume gives up the connection and continues the parked response in a goroutine.
func (c *conn) resume() {
	p, in, last := c.parked, c.in, c.last
	g := &guest{l: c.l, place: c.place, in: in, last: last}
	var err error
	if g.conn, err = c.release(); err != nil {
		c.leave(err)
		return
	}
	c.parked = nil
	c.l.invite(g)
	go func() {
		ok := c.l.try(func() { p.Resume(g) })
		g.finish(ok)
	}()
}
