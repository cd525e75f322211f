package api

import (
	"net/http"

	"weir/internal/access"
)

// streamDelete answers DELETE /v1/streams/{id}: the stream and all its batches are gone when it answers 204, and its
// subscribers get an end event (D31). It refuses what streamShow refuses, a key without the permission to manage (403,
// D20), and the demo stream for everybody (403, D22).
func (c *call) streamDelete() error {
	s, err := c.stream(access.DeleteStream)
	if err != nil {
		return err
	}
	if err := s.Delete(c.r.Context()); err != nil {
		return err
	}
	c.head(http.StatusNoContent, "", none, none)
	return nil
}
