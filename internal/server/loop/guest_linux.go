package loop

import (
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// guest is a parked response (one that continues after its handler has returned, see Parked) on its
// way to a loop, or one that has left its loop and continues in a goroutine. The loop does not end
// before the guest has arrived or its response is complete. The goroutine uses the guest as its
// response writer, which writes a chunk with each call of Write and buffers nothing.
type guest struct {
	l     *loop
	place Place
	in    []byte // data that was read and belongs to no request yet
	last  bool   // the connection is closed after the response
	moved bool   // the response was parked again

	failed bool // a write failed, perhaps in the middle of a chunk

	mu      sync.Mutex
	conn    *net.TCPConn
	stopped bool // a deadline in the past has stopped the response for good
}

// Park parks a response, whose head must have been sent. The response must be chunked. The function
// take takes the connection away from its owner. It returns the connection, its record (Place), and
// the data that was read from the connection and not used. If the parameter last is true, the
// connection is closed after the response.
//
// If Park returns false, the response was not parked, and take was not called or has failed.
// Otherwise the caller must not use the response or the connection any more.
func (ls *Loops) Park(p Parked, last bool, take func() (*net.TCPConn, Place, []byte, error)) bool {
	g := &guest{l: ls.parking(), last: last}
	if !g.l.invite(g) {
		return false
	}
	conn, place, in, err := take()
	if err != nil {
		g.dismiss()
		return false
	}
	g.mu.Lock()
	g.conn, g.place, g.in = conn, place, in
	g.mu.Unlock()
	return g.Park(p)
}

// invite keeps the loop from ending before the guest has arrived. It returns false if the loop has
// ended.
func (l *loop) invite(g *guest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	if l.guests == nil {
		l.guests = make(map[*guest]struct{})
	}
	l.guests[g] = struct{}{}
	return true
}

// dismiss undoes invite, and lets the loop check whether it can end.
func (g *guest) dismiss() {
	g.l.mu.Lock()
	delete(g.l.guests, g)
	g.l.mu.Unlock()
	g.l.post(message{})
}

// cut closes the connection of a guest.
func (g *guest) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn != nil {
		g.conn.Close()
	}
}

// Park gives the connection to the loop, and the response with it. It always returns true: if the
// loop cannot take the connection, the response is over.
func (g *guest) Park(p Parked) bool {
	g.moved = true
	g.enter(&conn{parked: p})
	return true
}

// enter gives the connection to the loop.
func (g *guest) enter(c *conn) {
	c.l, c.place, c.in, c.last, c.served = g.l, g.place, g.in, g.last, true
	if err := c.own(g.conn); err != nil {
		c.leave(err)
		g.place.Leave()
	} else {
		g.l.post(message{add: c})
	}
	g.dismiss()
}

// finish ends the response, unless it was parked again. Afterwards the connection waits for the next
// request. If ok is false, the response is incomplete, and the connection is closed.
func (g *guest) finish(ok bool) {
	if g.moved {
		return
	}
	if ok = ok && !g.failed; ok {
		_ = g.SetWriteDeadline(time.Now().Add(g.l.set.options.Idle))
		_, err := g.conn.Write([]byte(lastChunk))
		ok = err == nil
	}
	if ok && !g.last && !g.l.set.stopping.Load() {
		g.place.Rest(time.Now())
		g.enter(&conn{})
		return
	}
	g.conn.Close()
	g.place.Leave()
	g.dismiss()
}

// Header returns an empty header: the response has begun.
func (g *guest) Header() http.Header { return http.Header{} }

// WriteHeader has no effect: the response has begun.
func (g *guest) WriteHeader(int) {}

func (g *guest) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil // an empty chunk would end the response
	}
	head := append(strconv.AppendUint(make([]byte, 0, chunkHead), uint64(len(p)), 16), '\r', '\n')
	parts := net.Buffers{head, p, head[len(head)-2:]}
	if _, err := parts.WriteTo(g.conn); err != nil {
		g.failed = true
		return 0, err
	}
	return len(p), nil
}

// Flush has no effect: nothing is buffered.
func (g *guest) Flush() {}

// SetReadDeadline is called by http.ResponseController. It has no effect, because nothing is read.
func (g *guest) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is called by http.ResponseController. A deadline in the past stops the response
// for good, as in net/http.
func (g *guest) SetWriteDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return nil
	}
	g.stopped = !t.IsZero() && !t.After(time.Now())
	return g.conn.SetWriteDeadline(t)
}
