package api

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"weir/internal/access"
)

// streamChange serves PATCH /v1/streams/{id}: it changes the name, the retention or the maximum size
// of a stream, and responds with the stream object (D37). It ignores other members of the body.
// Batches that exceed the new limits are evicted before the response is sent. streamChange refuses
// the same requests as streamDelete, and the same bodies as streamCreate, except that no member is
// required. No key can change the demo stream (403, D22).
func (c *call) streamChange() error {
	s, err := c.stream(access.ChangeStream)
	if err != nil {
		return err
	}
	body, err := c.readObject()
	if err != nil {
		return err
	}
	c.hint(body, changeMembers)
	change, err := parseSettings(body, func(string, jsontext.Value) error { return nil })
	if err != nil {
		return err
	}
	object, err := s.Change(c.r.Context(), change)
	if err != nil {
		return err
	}
	c.note("stream changed", object.Name+" "+string(object.ID))
	return c.sendStream(http.StatusOK, &object)
}
