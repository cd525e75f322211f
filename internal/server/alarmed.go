package server

import (
	"net/http"
	"sync"
	"time"
)

// alarmed is an answer over HTTP/2 whose deadline for reading is an alarm of its own. Each time that a deadline is set, net/http
// sends a message to the goroutine that all requests of the connection share, and a publish sets three of them. The alarm goes
// there only when it rings.
type alarmed struct {
	http.ResponseWriter
	mu    sync.Mutex
	alarm *time.Timer // nil: there was none yet
	until time.Time   // when to ring; zero: not at all
	over  bool        // the handler has returned, and there is nothing left to ring for
}

// Unwrap leads to everything that is as it was.
func (a *alarmed) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// SetReadDeadline implements what http.ResponseController looks for.
func (a *alarmed) SetReadDeadline(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = t
	if t.IsZero() {
		if a.alarm != nil {
			a.alarm.Stop()
		}
		return nil
	}
	left := time.Until(t)
	switch {
	case left <= 0:
		return a.ring()
	case a.alarm == nil:
		a.alarm = time.AfterFunc(left, a.rings)
	default:
		a.alarm.Reset(left)
	}
	return nil
}

// rings is called by the alarm, which may be late: the deadline may be another one by then.
func (a *alarmed) rings() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over && !a.until.IsZero() && time.Until(a.until) <= 0 {
		_ = a.ring()
	}
}

// ring ends reading, now and for good: that is what a deadline in the past means.
func (a *alarmed) ring() error {
	return http.NewResponseController(a.ResponseWriter).SetReadDeadline(time.Unix(1, 0))
}

func (a *alarmed) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.alarm != nil {
		a.alarm.Stop()
	}
}
