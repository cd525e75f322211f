package api

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"time"

	"weir/internal/budget"
	"weir/internal/deflate"
)

// writer sends long responses in pieces, each with a deadline of its own. So a client that accepts
// nothing for the length of the timeout is disconnected (D17), and one that is merely slow is not.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	ended   context.Context // once this context is done, nothing more is written
	lasting bool            // the deadline may stay set between writes: false for HTTP/2
	until   time.Time       // the deadline that is set; zero if none is
	encoder *budget.Loan    // memory borrowed for the encoder of a compressed response; nil if there is none
	loan    *budget.Loan    // memory borrowed from the budget for the bytes that are sent; nil if there is none
	zip     *deflate.Member // the state of a compressed subscription; nil if it is not compressed
	packer  packer          // compresses a long response to a GET request; nil if it is not compressed
	broken  bool            // a write failed
}

// piece is the number of bytes that a client must accept within one timeout: about 2 KiB/s with the
// default of 30 s.
const piece = 64 << 10

func (c *call) writer() writer {
	return writer{
		w: c.w, control: http.NewResponseController(c.w), timeout: c.h.WriteTimeout, ended: c.r.Context(),
		lasting: c.r.ProtoMajor != 2,
	}
}

// write sends b. It leaves the deadline set, so flush or disarm must follow.
func (w *writer) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), piece)
		if err := w.writePiece(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (w *writer) writePiece(b []byte) error {
	if err := w.arm(); err != nil {
		return err
	}
	if _, err := w.w.Write(b); err != nil {
		w.broken = true
		return err
	}
	w.loan.Moved(len(b))
	w.encoder.Moved(len(b))
	return nil
}

// unhurried is how long a response must have lasted before release() copies memory. If the client
// receives the whole response sooner, copies would cost more than they save.
const unhurried = 100 * time.Millisecond

// release sends *b like the method write, and releases the memory of *b step by step (D34). Memory
// can only be freed as a whole. So each time half of it was sent, release copies the rest, replaces
// *b by the copy and shrinks the loan to the size of the copy. A slow client therefore holds at most
// twice the bytes that it still has to receive, and the copies together are smaller than *b.
//
// The loan must be for the memory of *b alone, and *b must be the only reference to that memory.
func (w *writer) release(b *[]byte) error {
	begun, held := time.Now(), len(*b)
	for len(*b) > 0 {
		n := min(len(*b), piece)
		if err := w.writePiece((*b)[:n]); err != nil {
			return err
		}
		*b = (*b)[n:]
		if rest := len(*b); held > 2*piece && rest <= held/2 && time.Since(begun) >= unhurried {
			*b = bytes.Clone(*b)
			held = rest
			w.loan.Shrink(int64(rest))
		}
	}
	return nil
}

// arm sets the deadline and then checks whether the response was ended, and whether its memory was
// taken back. The order matters: ender.end cancels the context first and then sets a deadline in
// the past. If arm overwrites that deadline, it is sure to see the cancelled context. If the
// memory is taken back, the loan is marked first and then the deadline is set, for the same reason.
//
// Over HTTP/1.1 and HTTP/3 a deadline does no harm while nothing is written. So there arm adds an
// eighth of the timeout to the deadline, and keeps this deadline for all writes until that eighth
// has passed. Setting and clearing a deadline for every batch would cost as much as waking the
// subscriber. Over HTTP/2, package server makes setting and clearing a deadline cheap.
func (w *writer) arm() error {
	now := time.Now()
	if w.lasting && w.until.Sub(now) >= w.timeout {
		return w.over()
	}
	w.until = now.Add(w.timeout)
	if w.lasting {
		w.until = w.until.Add(w.timeout / 8)
	}
	// The error is ignored because test recorders have no deadlines.
	_ = w.control.SetWriteDeadline(w.until)
	return w.over()
}

// over returns an error if nothing more may be written.
func (w *writer) over() error {
	if w.loan.IsCut() || w.encoder.IsCut() {
		return os.ErrDeadlineExceeded // the client was too slow
	}
	return w.ended.Err()
}

// flush sends the buffered bytes within the deadline of the last write, and then clears the
// deadline if it must not stay set.
func (w *writer) flush() error {
	if err := w.control.Flush(); err != nil {
		w.broken = true
		return err
	}
	if w.lasting {
		return w.ended.Err()
	}
	return w.disarm()
}

// disarm clears the deadline. Over HTTP/2 the deadline would end an idle stream, and over HTTP/1.1
// it would apply to later responses on the same connection.
func (w *writer) disarm() error {
	w.until = time.Time{}
	_ = w.control.SetWriteDeadline(time.Time{})
	return w.ended.Err()
}
