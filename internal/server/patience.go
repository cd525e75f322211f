package server

import (
	"net/http"
	"time"
)

// patience is the handler that net/http and http3 call. It refuses requests with large header
// fields, and sets time limits for two things that they do without one:
//
//   - If the handler does not read a body, net/http reads it, so that the connection can be used
//     again. The read deadline ends this for a client that sends slowly.
//   - When the handler returns, the rest of the response may still be buffered. An HTTP/2 or HTTP/3
//     client that never opens its flow-control window would hold it, with all memory of the
//     request, forever. The write deadline ends this.
//
// A handler that waits for a body, or writes more than a buffer holds, must set its own deadlines.
type patience struct {
	http.Handler
	oversized http.Handler
}

func (p patience) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	last := http.NewResponseController(w) // sets the deadline that outlives the handler
	if r.ProtoMajor == 2 {
		a := &alarmed{ResponseWriter: w}
		defer a.end()
		w = a
	}
	control := http.NewResponseController(w)
	if r.ProtoMajor == 1 {
		// Remove the deadline of the previous response on this connection.
		_ = control.SetWriteDeadline(time.Time{})
	}
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
