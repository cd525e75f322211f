package sim

import (
	"time"

	"weir"
)

// closeStream chooses a shared stream. It closes the stream if the time to close it has come.
func (c *client) closeStream(g *server) {
	s := c.stream()
	if s.closeAfter == 0 || time.Since(c.w.scheduler.start) < s.closeAfter {
		return
	}
	before := s.seen()
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	x := c.ask(g, "POST", "/v1/streams/"+string(s.id)+"/close", nil)
	if x == nil || x.status == 503 {
		return
	}
	var object weir.Stream
	if err := unmarshal(x.got.Bytes(), &object); err != nil || x.status != 200 || !object.Closed {
		c.w.violation("stream %s: close: %d %s", s.id, x.status, x.got.String())
		return
	}
	s.cursorIs(object.Cursor, before)
	s.describes(x)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed(g)
}

// isClosed records that a client knows the stream to be closed. The subscriptions to the stream
// must end soon.
func (s *stream) isClosed(g *server) {
	if !s.closing {
		s.w.violation("stream %s is closed, but no client has closed it", s.id)
	}
	s.closed = true
	for _, x := range g.requests() {
		if x.of == s {
			s.w.model.endsSoon(x)
		}
	}
}

// endsSoon records that a request must end within two seconds.
func (m *model) endsSoon(x *exchange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if soon := time.Now().Add(2*time.Second + m.w.slack()); x.until.IsZero() || x.until.After(soon) {
		x.until = soon
	}
}

// refusedClosed checks a publish that was refused because the stream is closed.
func (s *stream) refusedClosed(g *server, stored bool, what string) {
	if stored {
		s.w.violation("stream %s: %s is stored, but a publish was refused because the stream is closed", s.id, what)
	}
	s.isClosed(g)
}

// end checks the last event of a subscription.
func (sub *subscriber) end(data string) {
	s := sub.s
	sub.ended = true
	switch {
	case data == `{"reason":"stream_deleted"}` && s.deleting:
	case data == `{"reason":"stream_closed"}` && s.closing:
		for _, seq := range s.acked.from(sub.pos) {
			s.w.violation("stream %s: a subscriber that wants %d was told that the stream is closed, but batch %d was acknowledged", s.id, sub.pos, seq)
			return
		}
		s.closed = true
	default:
		s.w.violation("stream %s: end event with %s", s.id, data)
	}
}
