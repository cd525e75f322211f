package server

import (
	"net/http"
	"sync"
	"time"
)

// alarmed is an HTTP/2 response writer that implements deadlines with its own timers. In net/http,
// every call that sets a deadline sends a message to the goroutine that all requests of the
// connection share. A publish sets three deadlines, and a subscription two for each batch that it
// sends. Nearly all of them are replaced or cleared before they expire. So alarmed only remembers a
// deadline, and calls net/http when the deadline really expires.
type alarmed struct {
	http.ResponseWriter
	mu    sync.Mutex
	read  alarm
	write alarm
	done  bool // the handler has returned, so the timers must not touch the response
}

// alarm is a deadline. The timer keeps running when the deadline is moved or cleared. When the
// timer fires, the method fire checks whether the deadline has really expired. Resetting the timer
// for every batch of a subscription would cost more than this check.
type alarm struct {
	timer *time.Timer // nil before the first deadline
	until time.Time   // zero if there is no deadline
	rings time.Time   // when the timer fires; zero if it is not running
}

// Unwrap gives http.ResponseController access to everything that alarmed does not change.
func (a *alarmed) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// SetReadDeadline is called by http.ResponseController. The zero time removes the deadline, and a
// time in the past ends reading immediately.
func (a *alarmed) SetReadDeadline(t time.Time) error { return a.set(&a.read, t) }

// SetWriteDeadline is called by http.ResponseController. The zero time removes the deadline, and a
// time in the past ends the response immediately.
func (a *alarmed) SetWriteDeadline(t time.Time) error { return a.set(&a.write, t) }

func (a *alarmed) set(m *alarm, t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.until = t; t.IsZero() || a.done {
		return nil
	}
	left := time.Until(t)
	switch {
	case left <= 0:
		return a.expire(m)
	case m.timer == nil:
		m.timer = time.AfterFunc(left, func() { a.fire(m) })
	case m.rings.IsZero() || t.Before(m.rings):
		m.timer.Reset(left)
	default:
		return nil // the timer fires early enough
	}
	m.rings = t
	return nil
}

// fire is called by a timer. By then, the deadline may have been moved or removed, or the handler
// may have returned. So fire checks again, under the lock, whether the deadline has expired.
func (a *alarmed) fire(m *alarm) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.rings = time.Time{}
	if a.done || m.until.IsZero() {
		return
	}
	if left := time.Until(m.until); left > 0 {
		m.timer.Reset(left)
		m.rings = m.until
		return
	}
	_ = a.expire(m)
}

// expire ends reading or writing permanently, by setting a deadline in the past.
func (a *alarmed) expire(m *alarm) error {
	control := http.NewResponseController(a.ResponseWriter)
	if m == &a.read {
		return control.SetReadDeadline(time.Unix(1, 0))
	}
	return control.SetWriteDeadline(time.Unix(1, 0))
}

// end stops the timers. The handler's goroutine calls it when the handler has returned; a timer
// function that runs later does nothing.
func (a *alarmed) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = true
	for _, m := range []*alarm{&a.read, &a.write} {
		if m.timer != nil {
			m.timer.Stop()
		}
	}
}
