package server

import (
	"net"
	"net/http"
	"slices"

	"weir/internal/server/loop"
)

// Park parks a response: an event loop continues it, and the handler must return; see loop.Loops.
// Park returns false if the response cannot be parked, because there are no event loops, the
// response is not chunked (HTTP/1.0), or the request has a body.
func (s *stoppable) Park(p loop.Parked) bool {
	if s.loops == nil || !s.request.ProtoAtLeast(1, 1) || s.request.ContentLength != 0 {
		return false
	}
	return s.loops.Park(p, s.request.Close, s.take)
}

// take takes the connection away from net/http. It returns the data that net/http has read but not
// used, which belongs to the next request.
func (s *stoppable) take() (*net.TCPConn, loop.Place, []byte, error) {
	c, buffered, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, nil, err
	}
	r := c.(*replayed) // if there are event loops, net/http gets all its connections from front.handOver
	n := r.Conn.(*counted)
	in, _ := buffered.Reader.Peek(buffered.Reader.Buffered()) // cannot fail, because this data is already buffered
	return n.TCPConn, seat{n.place}, slices.Concat(in, r.raw), nil
}
