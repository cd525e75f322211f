package api

import (
	"net/http"
	"strconv"
	"time"
)

// health serves GET /v1/health. It responds with 200, the status "ok" and the uptime while the
// service accepts reads and writes, and otherwise with 503 and the name of the problem (D32). It
// needs no key and ignores the key of a request that has one. Its requests count towards the rate
// limit of the client's address (D23).
func (c *call) health() error {
	status, state := http.StatusOK, "ok"
	if s, ok := c.h.Health(); !ok {
		status, state = http.StatusServiceUnavailable, s
	}
	p := buffers.Get().(*[]byte)
	b := append(*p, `{"status":`...)
	b = appendString(b, state)
	b = append(b, `,"uptime_s":`...)
	b = strconv.AppendInt(b, int64(time.Since(c.h.Started)/time.Second), 10)
	b = append(b, '}')
	err := c.answer(status, b)
	putBuffer(p, b)
	return err
}
