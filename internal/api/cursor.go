package api

import (
	"net/http"

	"weir/internal/access"
)

// cursor serves GET /v1/streams/{id}/cursor: the highest sequence ever stored and the time at which
// it was stored (D1, D13). It refuses what streamShow refuses.
func (c *call) cursor() error {
	s, err := c.stream(access.ReadStream)
	if err != nil {
		return err
	}
	cursor, err := s.Cursor(c.r.Context())
	if err != nil {
		return err
	}
	p := buffers.Get().(*[]byte)
	b := appendCursor(*p, &cursor)
	err = c.answer(http.StatusOK, b)
	putBuffer(p, b)
	return err
}
