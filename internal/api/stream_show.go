package api

import (
	"net/http"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// streamShow serves GET /v1/streams/{id}. It sends the stream object, or starts a subscription if
// the client accepts text/event-stream (D28). A HEAD request never starts a subscription (D30).
// streamShow refuses a malformed id (400 invalid_stream_id), an unknown id (404 stream_not_found),
// and a key that may not read the stream (403 project_forbidden). The demo stream can be read
// without a key (D22).
func (c *call) streamShow() error {
	s, err := c.stream(access.ReadStream)
	if err != nil {
		return err
	}
	if !c.isHead() && acceptsEvents(c.r.Header["Accept"]) {
		return c.subscribe(s)
	}
	return c.show(s)
}

// show sends the stream object. It is separate from streamShow, so that the variables of show are
// not on the stack of a subscription, which lasts for hours.
func (c *call) show(s *hub.Stream) error {
	object, err := s.Object(c.r.Context())
	if err != nil {
		return err
	}
	return c.sendStream(http.StatusOK, &object)
}

// sendStream sends a stream object.
func (c *call) sendStream(status int, object *weir.Stream) error {
	p := buffers.Get().(*[]byte)
	b := appendStream(*p, object)
	err := c.answer(status, b)
	putBuffer(p, b)
	return err
}
