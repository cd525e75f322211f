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
	errBodyTooLarge   = &weir.Error{Code: weir.PayloadTooLarge, Message: "the body is larger than 8 MiB (8388608 bytes)"}
	errCreateTooLarge = &weir.Error{Code: weir.PayloadTooLarge, Message: "the body is larger than 64 KiB (65536 bytes)"}
	errBodyBroken     = &weir.Error{Code: weir.InvalidRequest, Message: "the body did not arrive whole"}
	errBodySlow       = &weir.Error{Code: weir.InvalidRequest, Message: "the body did not arrive in time"}
)

const (
	// firstRead is what is given to a body before anything of it has arrived, however long it says it will be. More than that
	// comes out of the memory that all large bodies share.
	firstRead = 4 << 10

	// memoryWait is how long a body waits for that memory.
	memoryWait = 10 * time.Second

	// A body must bring slowestBytes (or end) every slowest, so that nobody holds a connection with nothing.
	slowest      = 30 * time.Second
	slowestBytes = 256 << 10
)

// body reads the whole body, which may have up to most bytes (D9), into memory that belongs to the caller. A body of known
// length is read into a buffer of that length. One that turns out too large is given up as soon as it does: net/http then
// closes the connection, after it has given the client time to read the answer.
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
	// One byte more than is wanted, so that the end is seen without growing.
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
		_ = control.SetReadDeadline(time.Time{}) // else it stays for what net/http reads of the rest
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

// hold takes memory for the whole body, before the first byte that does not fit into firstRead: so no body that has begun waits
// for others that have begun too. One of unknown length takes as much as it may have.
func (c *call) hold(length, most int64) error {
	if c.held > 0 {
		return nil
	}
	if length < 0 {
		length = most
	}
	return c.reserve(c.h.Bodies, min(length, most))
}

var errMemory = &weir.Error{Code: weir.Overloaded, Message: "this server has as many large bodies and batches under way as it has memory for"}

// reserve takes memory until the end of the call.
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

// holder is whose share of the memory that is.
func (c *call) holder() string { return string(c.grant.Project()) }

// grow makes room: for all that was announced, or for twice as much as has come.
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

// linger gives an HTTP/2 client whose body was not read a moment to take the answer in. When the handler returns, net/http
// resets such a stream, and some clients (curl before 8) then forget an answer that they had not looked at yet. Over
// HTTP/1.1 net/http itself does the same.
func (c *call) linger() {
	control := http.NewResponseController(c.w)
	end := time.Now().Add(lingerTime)
	if control.Flush() != nil || control.SetReadDeadline(end) != nil {
		return
	}
	// Who sends more than this has not looked yet. Nothing more is read, so that it cannot send on either.
	if _, err := io.CopyN(io.Discard, c.r.Body, lingerBytes); err == nil {
		select {
		case <-c.r.Context().Done():
		case <-time.After(time.Until(end)):
		}
	}
}
