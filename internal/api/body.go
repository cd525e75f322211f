package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"weir"
	"weir/internal/access"
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

	// secondRead is what a body gets next, and then four times as much whenever that is used up.
	// So a client holds at most a small multiple of what it has sent (D34).
	secondRead = 64 << 10

	// memoryWait is how long a body waits for the shared budget.
	memoryWait = 10 * time.Second

	// A client must send slowestBytes (or the end of the body) within every period of slowest, so
	// that it cannot occupy a connection by sending nothing.
	slowest      = 30 * time.Second
	slowestBytes = 256 << 10
)

// body reads the whole body, up to most bytes (D9). The caller owns the result. Reading stops as
// soon as the body proves too large; net/http then closes the connection, after giving the client
// time to read the response.
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
			if b, err = c.grow(b, length, most); err != nil {
				c.read = false
				return nil, err
			}
			_ = control.SetReadDeadline(time.Now().Add(slowest))
		}
		if c.loan.IsCut() { // after a deadline is set, or that would replace the one of stop
			return nil, errBodyCut
		}
		var n int
		n, err = c.r.Body.Read(b[len(b):min(cap(b), len(b)+slowestBytes-len(b)%slowestBytes)])
		b = b[:len(b)+n]
		c.received += int64(n)
		c.loan.Moved(n)
	}
	c.loan.Watch(false)
	if err == io.EOF {
		_ = control.SetReadDeadline(time.Time{}) // or it would stay for what net/http reads next
	}
	switch {
	case int64(len(b)) > most:
		return nil, tooLarge
	case err == io.EOF && (length < 0 || int64(len(b)) == length):
		return b, nil
	case c.loan.IsCut():
		return nil, errBodyCut
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errBodySlow
	}
	return nil, errBodyBroken
}

var (
	errMemory  = &weir.Error{Code: weir.Overloaded, Message: "this server has no memory free for another large body or batch; retry after the number of seconds in retry-after"}
	errBodyCut = &weir.Error{Code: weir.Overloaded, Message: "the body arrived too slowly while other requests waited for its memory; send it again after the number of seconds in retry-after"}
)

// grow returns a larger buffer with the same content, for which it has borrowed memory.
func (c *call) grow(b []byte, length, most int64) ([]byte, error) {
	room := max(4*int64(cap(b)), secondRead)
	if length >= 0 {
		most = min(most, length)
	}
	room = min(room, most+1)
	if c.loan == nil {
		final := most + 1
		if length < 0 && final > budget.Small {
			final = -1 // it may turn out to be small
		}
		control := http.NewResponseController(c.w)
		c.loan = c.h.Bodies.Open(c.holder(), final, func() { _ = control.SetReadDeadline(longAgo) })
		c.loan.Watch(true)
	}
	if err := c.borrow(room); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, room), b...), nil
}

// compact returns a part of a buffer, as a copy if it is much smaller. A batch may stay in memory
// for its subscribers, and would keep the whole buffer there too.
func compact(part, whole []byte) []byte {
	if isMuchSmaller(part, whole) {
		return append(make([]byte, 0, len(part)), part...)
	}
	return part
}

// isMuchSmaller reports whether a part of a buffer is so small that the rest matters. For less than
// 256 bytes a copy would cost more than it saves.
func isMuchSmaller(part, whole []byte) bool { return 2*len(part)+256 <= cap(whole) }

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// borrow makes the call's loan at least so large. It waits for that for a limited time.
func (c *call) borrow(bytes int64) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), c.h.memoryWait)
	defer cancel()
	if err := c.loan.Grow(ctx, bytes); err != nil {
		return errMemory
	}
	return nil
}

// holder names the one that memory and places count against: the key within its project, or the
// address of a client that reads the demo.
func (c *call) holder() budget.Holder {
	switch {
	case c.grant == nil: // see Tail
		return budget.Holder{Key: "dashboard"}
	case c.grant.Demo():
		return budget.Holder{Project: string(c.grant.Project()), Key: access.Network(c.client()).String()}
	}
	return budget.Holder{Project: string(c.grant.Project()), Key: c.grant.KeyID()}
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
