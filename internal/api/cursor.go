package api

import (
	"net/http"

	"weir/internal/access"
)

// cursor serves GET /v1/streams/{id}/cursor. It sends the highest sequence ever stored in the
// stream, and the time at which that sequence was stored (D1, D13). It refuses the same requests as
// streamShow.
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
