package api

import (
	"net/http"
	"strconv"
	"time"
)

// health answers GET /v1/health: 200 with status ok and the uptime while the service takes reads and writes, and 503
// with the name of the trouble when it does not (D32). It needs no key, and a key that is sent is not looked at; it
// counts in the window of the client's address (D23).
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
