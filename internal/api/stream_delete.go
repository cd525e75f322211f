package api

import (
	"net/http"

	"weir/internal/access"
)

// streamDelete serves DELETE /v1/streams/{id}. When it responds with 204, the stream and all its
// batches are deleted. The subscribers of the stream get an end event (D31). streamDelete refuses
// the same requests as streamShow. It also refuses a key without the permission to manage (403,
// D20). No key can delete the demo stream (403, D22).
func (c *call) streamDelete() error {
	s, err := c.stream(access.DeleteStream)
	if err != nil {
		return err
	}
	if err := s.Delete(c.r.Context()); err != nil {
		return err
	}
	c.note("stream deleted", s.Name()+" "+c.route.id)
	c.head(http.StatusNoContent, "", none, none)
	return nil
}
