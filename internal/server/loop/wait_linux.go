package loop

import "time"

// The reasons for which a connection waits. A connection waits for at most one of them.
const (
	forHead    = iota // a new connection waits for its first request
	forRequest        // a connection that has had a request waits for the next one
	forRest           // a part of a request has arrived
	forClient         // the client has not accepted the whole response yet
	// The next two reasons are for parked responses, which continue after their handlers have
	// returned (see Parked).
	forBeat   // the client has got everything so far; after the wait it gets a sign of life
	forReader // the client has not accepted everything yet

	forWindow // responses over HTTP/2 wait until the client opens a window
	forEnd    // an HTTP/2 connection is over, and the client has to close it
	waits

	forNothing = -1
)

// queue holds the connections that wait for the same reason. The limit is the same for all of them,
// so the connection whose wait ends first is at the front.
type queue struct {
	limit       time.Duration
	first, last *conn
}

// wait is a connection's place in a queue.
type wait struct {
	queue        *queue // nil if the connection does not wait
	before, next *conn
	due          time.Time // when the wait ends
}

// add lets a connection wait, from now on. The connection leaves the queue in which it was before.
func (q *queue) add(c *conn, now time.Time) {
	c.stopWaiting()
	c.wait = wait{queue: q, before: q.last, due: now.Add(q.limit)}
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
}

func (c *conn) stopWaiting() {
	q := c.queue
	if q == nil {
		return
	}
	if c.before == nil {
		q.first = c.next
	} else {
		c.before.next = c.next
	}
	if c.next == nil {
		q.last = c.before
	} else {
		c.next.before = c.before
	}
	c.wait = wait{}
}
