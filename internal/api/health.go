package api

import (
	"net/http"
	"strconv"
	"time"
)

// health serves GET /v1/health: 200 with status "ok" and the uptime while the service takes reads
// and writes, and 503 with the name of the problem otherwise (D32). It needs no key and ignores one
// that is sent. It counts in the rate window of the client's address (D23).
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
