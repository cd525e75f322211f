package api

import (
	"net/http"

	"weir/internal/access"
	"weir/internal/hub"
)

// streamShow answers GET /v1/streams/{id} with the stream object, or begins a subscription when the client accepts
// text/event-stream (D28); a HEAD never does (D30). It refuses a malformed id (400 invalid_stream_id), an unknown one
// (404 stream_not_found), and a key that may not read it (403 project_forbidden). The demo stream needs no key (D22).
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

// show sends the stream object. A subscriber does not have its variables below it for hours.
func (c *call) show(s *hub.Stream) error {
	object, err := s.Object(c.r.Context())
	if err != nil {
		return err
	}
	p := buffers.Get().(*[]byte)
	b := appendStream(*p, &object)
	err = c.answer(http.StatusOK, b)
	putBuffer(p, b)
	return err
}
