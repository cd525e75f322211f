package api

import (
	"net/http"

	"weir/internal/access"
)

// streamClose serves POST /v1/streams/{id}/close. It ends the stream for good and responds with 200
// and the stream object, which then has "closed": true (D37). When it responds, the end is durable.
// Repeating the request gives the same response. streamClose ignores the body of the request. It
// refuses the same requests as streamDelete.
func (c *call) streamClose() error {
	s, err := c.stream(access.CloseStream)
	if err != nil {
		return err
	}
	// Bounds only tells whether the request changes anything. Its error is ignored: if the client
	// has hung up, the stream is closed all the same (D33), and after any other error Close fails
	// too.
	_, before, _ := s.Bounds(c.r.Context())
	object, err := s.Close(c.r.Context())
	if err != nil {
		return err
	}
	if !before.Ended {
		c.note(StreamClosed, object.Name+" "+string(object.ID))
	}
	return c.sendStream(http.StatusOK, &object)
}
