package api

import (
	"context"
	"net/http"
	"time"
)

// writer sends what may take long, in pieces, each with a deadline of its own: who takes nothing for that long is cut
// off (D17), and who is merely slow is not.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	ended   context.Context // nothing is written any more once it has ended
}

// piece is what has to be taken within the deadline: 2 KiB a second with the default one.
const piece = 64 << 10

func (c *call) writer() writer {
	return writer{c.w, http.NewResponseController(c.w), c.h.WriteTimeout, c.r.Context()}
}

// write sends b. The deadline stays set: flush or disarm must follow.
func (w *writer) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), piece)
		if err := w.arm(); err != nil {
			return err
		}
		if _, err := w.w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// arm sets the deadline, and looks whether there is still somebody to write to. In that order: whoever ends the
// subscription ends the context first and sets a deadline in the past after it, so one of the two is always seen.
func (w *writer) arm() error {
	// A server without deadlines (a test's recorder) goes without.
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
	return w.ended.Err()
}

// flush sends what is buffered, within the deadline of the last write, and takes the deadline away.
func (w *writer) flush() error {
	if err := w.control.Flush(); err != nil {
		return err
	}
	return w.disarm()
}

// disarm takes the deadline away. Over HTTP/2 it would end a stream that is idle, and over HTTP/1.1 it would hit the next
// answers on the same connection.
func (w *writer) disarm() error {
	_ = w.control.SetWriteDeadline(time.Time{})
	return w.ended.Err()
}
