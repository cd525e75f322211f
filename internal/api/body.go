package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"weir"
	"weir/internal/budget"
)

var (
	errBodyTooLarge   = &weir.Error{Code: weir.PayloadTooLarge, Message: "the body is larger than 8 MiB (8388608 bytes); split it into several batches"}
	errCreateTooLarge = &weir.Error{Code: weir.PayloadTooLarge, Message: "the body is larger than 64 KiB (65536 bytes); send only the members of the new stream"}
	errBodyBroken     = &weir.Error{Code: weir.InvalidRequest, Message: "the body is incomplete or its framing is invalid; check Content-Length or the chunked encoding, and send it again"}
	errBodySlow       = &weir.Error{Code: weir.InvalidRequest, Message: "the body did not arrive in time; send at least 256 KiB every 30 s"}
)

const (
	// firstRead is the memory that a body gets before any of it has arrived, whatever length it
	// declares. Anything above it comes from the budget that all large bodies share, so a client
	// cannot make the server allocate 8 MiB by sending a header.
	firstRead = 4 << 10

	// memoryWait is how long a body waits for the shared budget.
	memoryWait = 10 * time.Second

	// A client must send slowestBytes (or the end of the body) within every period of slowest, so
	// that it cannot occupy a connection by sending nothing.
	slowest      = 30 * time.Second
	slowestBytes = 256 << 10
)

// body reads the whole body, up to most bytes (D9). The caller owns the result. If the length is
// known, the buffer has exactly that length. Reading stops as soon as the body proves too large;
// net/http then closes the connection, after giving the client time to read the response.
func (c *call) body(most int64, tooLarge error) ([]byte, error) {
	c.read = true
	length := c.r.ContentLength
	if length == 0 {
		return []byte{}, nil
	}
	control := http.NewResponseController(c.w)
	size := min(length, most)
	if length < 0 {
		size = min(most, firstRead)
	}
	// One byte more than the body needs, so that reading sees its end without growing the buffer.
	b := make([]byte, 0, min(size, firstRead)+1)
	err := error(nil)
	for err == nil {
		if len(b)%slowestBytes == 0 {
			_ = control.SetReadDeadline(time.Now().Add(slowest))
		}
		if len(b) == cap(b) {
			switch {
			case int64(len(b)) > most:
				c.read = false
				return nil, tooLarge
			case length >= 0 && int64(len(b)) > length:
				return nil, errBodyBroken
			}
			if err = c.hold(length, most); err != nil {
				c.read = false
				return nil, err
			}
			b = grow(b, length, most)
			_ = control.SetReadDeadline(time.Now().Add(slowest))
		}
		var n int
		n, err = c.r.Body.Read(b[len(b):min(cap(b), len(b)+slowestBytes-len(b)%slowestBytes)])
		b = b[:len(b)+n]
		c.received += int64(n)
	}
	if err == io.EOF {
		_ = control.SetReadDeadline(time.Time{}) // or it would stay for what net/http reads next
	}
	switch {
	case int64(len(b)) > most:
		return nil, tooLarge
	case err == io.EOF && (length < 0 || int64(len(b)) == length):
		return b, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errBodySlow
	}
	return nil, errBodyBroken
}

// hold borrows memory for the whole body, when the first byte arrives that exceeds firstRead. It
// borrows all of it at once: bodies that borrowed in steps could deadlock, each waiting for memory
// that another holds. A body of unknown length borrows the maximum.
func (c *call) hold(length, most int64) error {
	if c.held > 0 {
		return nil
	}
	if length < 0 {
		length = most
	}
	return c.reserve(c.h.Bodies, min(length, most))
}

var errMemory = &weir.Error{Code: weir.Overloaded, Message: "this server has no memory free for another large body or batch; retry after the number of seconds in retry-after"}

// reserve borrows memory until the end of the call.
func (c *call) reserve(from *budget.Budget, bytes int64) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), c.h.memoryWait)
	defer cancel()
	var err error
	c.lender = from
	if c.held, err = from.Take(ctx, c.holder(), bytes); err != nil {
		return errMemory
	}
	return nil
}

// holder names the borrower of the memory: the project, which may borrow at most half of a budget.
func (c *call) holder() string { return string(c.grant.Project()) }

// grow returns a larger buffer: for the declared length, or twice as large if it is unknown.
func grow(b []byte, length, most int64) []byte {
	room := min(2*int64(cap(b)), most+1)
	if length >= 0 {
		room = min(length, most) + 1
	}
	return append(make([]byte, 0, room), b...)
}

const (
	lingerTime  = 100 * time.Millisecond
	lingerBytes = 256 << 10
)

// linger gives an HTTP/2 client that is still sending its body a moment to read the response. When
// the handler returns without having read the body, net/http resets the stream, and some clients
// (curl before 8) then discard a response that they have not read yet. Over HTTP/1.1, net/http
// lingers itself.
func (c *call) linger() {
	control := http.NewResponseController(c.w)
	end := time.Now().Add(lingerTime)
	if control.Flush() != nil || control.SetReadDeadline(end) != nil {
		return
	}
	// A client that sends this much has not read the response yet. Stop reading: flow control then
	// keeps it from sending more until the time is up.
	if _, err := io.CopyN(io.Discard, c.r.Body, lingerBytes); err == nil {
		select {
		case <-c.r.Context().Done():
		case <-time.After(time.Until(end)):
		}
	}
}
