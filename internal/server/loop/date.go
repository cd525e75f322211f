package loop

import (
	"net/http"
	"sync/atomic"
	"time"
)

// today caches the value of the Date field, for all connections. The value changes once per second.
var today atomic.Pointer[second]

type second struct {
	unix int64
	text string
}

// Date returns the value of the header field Date.
func Date(now time.Time) string {
	s := today.Load()
	if s == nil || s.unix != now.Unix() {
		s = &second{now.Unix(), now.UTC().Format(http.TimeFormat)}
		today.Store(s)
	}
	return s.text
}
