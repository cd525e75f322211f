package server

import (
	"net/http"
	"sync"
	"time"
)

// alarmed is an HTTP/2 response writer that implements read deadlines with its own timer. Each time
// a handler sets a deadline, net/http sends a message to the goroutine that all requests of the
// connection share, and a publish sets three deadlines. Nearly all of them are replaced or cleared
// before they expire. So alarmed only resets a timer, and calls net/http when a deadline really
// expires.
type alarmed struct {
	http.ResponseWriter
	mu    sync.Mutex
	timer *time.Timer // nil before the first deadline
	until time.Time   // the current deadline; zero if there is none
	done  bool        // the handler has returned; the timer must not touch the response
}

// Unwrap gives http.ResponseController access to everything that alarmed does not change.
func (a *alarmed) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// SetReadDeadline is called by http.ResponseController. The zero time removes the deadline, and a
// time in the past ends reading immediately.
func (a *alarmed) SetReadDeadline(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = t
	if t.IsZero() {
		if a.timer != nil {
			a.timer.Stop()
		}
		return nil
	}
	left := time.Until(t)
	switch {
	case left <= 0:
		return a.expire()
	case a.timer == nil:
		a.timer = time.AfterFunc(left, a.fire)
	default:
		a.timer.Reset(left)
	}
	return nil
}

// fire is called by the timer. It may run late, when the deadline has been moved or removed or the
// handler has returned. So it checks again, under the lock, whether a deadline has expired.
func (a *alarmed) fire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.done && !a.until.IsZero() && time.Until(a.until) <= 0 {
		_ = a.expire()
	}
}

// expire ends reading permanently, by setting a deadline in the past.
func (a *alarmed) expire() error {
	return http.NewResponseController(a.ResponseWriter).SetReadDeadline(time.Unix(1, 0))
}

// end stops the timer. The handler's goroutine calls it when the handler has returned; a timer
// function that runs later does nothing.
func (a *alarmed) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
