package server

import (
	"net/http"
	"time"
)

// patience is the handler that net/http and http3 call: it bounds what they leave unbounded. A body that the handler does
// not read is read by net/http, to keep the connection, and that must end; and so must what the handler left to be sent,
// which an HTTP/2 or HTTP/3 client that opens no window would keep, with all that belongs to the request, for ever.
//
// A handler that waits for a body, or writes more than a buffer takes, sets deadlines of its own.
type patience struct{ http.Handler }

func (p patience) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		a := &alarmed{ResponseWriter: w}
		defer a.end()
		w = a
	}
	control := http.NewResponseController(w)
	if r.ProtoMajor == 1 {
		_ = control.SetWriteDeadline(time.Time{}) // that of the answer before
	}
	patience := answerTime
	if r.ContentLength != 0 {
		_ = control.SetReadDeadline(time.Now().Add(skipTime))
		patience += skipTime // over HTTP/1.1 the answer goes out after what is skipped
	}
	p.Handler.ServeHTTP(w, r)
	_ = control.SetWriteDeadline(time.Now().Add(patience))
}
