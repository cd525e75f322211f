package server

import (
	"net/http"
	"sync"
	"time"

	"weir/internal/server/loop"
)

// patience is the handler that net/http and http3 call. It refuses requests with large header
// fields. It aborts requests on a TCP connection that is being closed to make room for another; the
// type visit does so for HTTP/3. It also sets time limits for two things that net/http and http3 do
// without a limit:
//
//   - If the handler does not read a body, net/http reads it, so that the connection can be used
//     again. The read deadline ends this reading if the client sends slowly.
//   - When the handler returns, the rest of the response may still be buffered. An HTTP/2 or HTTP/3
//     client that never opens its flow-control window would keep this buffer, and all memory of
//     the request, in use forever. The write deadline ends this.
//
// A handler that waits for a body, or writes more than a buffer holds, must set its own deadlines.
type patience struct {
	http.Handler
	oversized http.Handler
	loops     *loop.Loops // event loops, which can continue a response after its handler has returned; nil if there are none
}

func (p patience) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if place, _ := r.Context().Value(placeKey{}).(*place); place.isReplaced() {
		panic(http.ErrAbortHandler)
	}
	last := http.NewResponseController(w) // sets the deadline that applies after the handler has returned
	switch r.ProtoMajor {
	case 1:
		// Remove the deadline of the previous response on this connection.
		_ = last.SetWriteDeadline(time.Time{})
		w = &stoppable{ResponseWriter: w, request: r, loops: p.loops}
		last = http.NewResponseController(w)
	case 2:
		a := &alarmed{ResponseWriter: w}
		defer a.end()
		w = a
	}
	control := http.NewResponseController(w)
	patience := answerTime
	if r.ContentLength != 0 {
		_ = control.SetReadDeadline(time.Now().Add(skipTime))
		// Over HTTP/1.1 the response is sent only after the rest of the body was skipped.
		patience += skipTime
	}
	h := p.Handler
	if headerBytes(r) > maxHeaderBytes {
		h = p.oversized
	}
	h.ServeHTTP(w, r)
	_ = last.SetWriteDeadline(time.Now().Add(patience))
}

// stoppable is an HTTP/1.1 response writer. A write deadline in the past stops it for good: later
// deadlines have no effect. So net/http cannot send the end of the response, and closes the
// connection. Otherwise the connection of a subscription whose key was revoked would stay open
// (D18), because patience sets another deadline after the handler has returned. The type alarmed
// does the same for HTTP/2, where only the response ends.
type stoppable struct {
	http.ResponseWriter
	request *http.Request
	loops   *loop.Loops // see Park

	mu      sync.Mutex // the handler and a goroutine that stops the response both set deadlines
	stopped bool
}

// Unwrap gives http.ResponseController access to everything that stoppable does not change.
func (s *stoppable) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// SetWriteDeadline is called by http.ResponseController. The zero time removes the deadline.
func (s *stoppable) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = !t.IsZero() && !t.After(time.Now())
	return http.NewResponseController(s.ResponseWriter).SetWriteDeadline(t)
}
