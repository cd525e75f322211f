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
	lasting bool            // the deadline may stay set between writes: HTTP/1.1
	until   time.Time       // the deadline that stays set
}

// piece is what has to be taken within the deadline: 2 KiB a second with the default one.
const piece = 64 << 10

func (c *call) writer() writer {
	return writer{
		w: c.w, control: http.NewResponseController(c.w), timeout: c.h.WriteTimeout, ended: c.r.Context(),
		lasting: c.r.ProtoMajor == 1,
	}
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
//
// Over HTTP/1.1 a deadline does no harm while nothing is written, so it is set an eighth later than it must be and stays for
// that long: setting two for every batch costs as much as waking the subscriber.
func (w *writer) arm() error {
	now := time.Now()
	if w.lasting && w.until.Sub(now) >= w.timeout {
		return w.ended.Err()
	}
	w.until = now.Add(w.timeout)
	if w.lasting {
		w.until = w.until.Add(w.timeout / 8)
	}
	// A server without deadlines (a test's recorder) goes without.
	_ = w.control.SetWriteDeadline(w.until)
	return w.ended.Err()
}

// flush sends what is buffered, within the deadline of the last write, and takes the deadline away.
func (w *writer) flush() error {
	if err := w.control.Flush(); err != nil {
		return err
	}
	if w.lasting {
		return w.ended.Err()
	}
	return w.disarm()
}

// disarm takes the deadline away. Over HTTP/2 it would end a stream that is idle, and over HTTP/1.1 it would hit the next
// answers on the same connection.
func (w *writer) disarm() error {
	w.until = time.Time{}
	_ = w.control.SetWriteDeadline(time.Time{})
	return w.ended.Err()
}
