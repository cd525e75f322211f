package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/budget"
	"weir/internal/jsonbody"
)

var (
	errBodyTooLarge   = &weir.Error{Code: weir.PayloadTooLarge, Message: "the body is larger than 8 MiB (8388608 bytes); split it into several batches"}
	errObjectTooLarge = &weir.Error{Code: weir.PayloadTooLarge, Message: "the body is larger than 64 KiB (65536 bytes)"}
	errBodyBroken     = &weir.Error{Code: weir.InvalidRequest, Message: "the body is incomplete or its framing is invalid; check Content-Length or the chunked encoding, and send it again"}
	errBodySlow       = &weir.Error{Code: weir.InvalidRequest, Message: "the body did not arrive in time; send at least 256 KiB every 30 s"}
)

const (
	// firstRead is the size of the buffer that a body gets before any of it has arrived, whatever
	// length the request declares. A larger buffer needs memory from the budget that all large
	// bodies share. So a client cannot make the server allocate 8 MiB just by sending a header.
	firstRead = 4 << 10

	// secondRead is the size of the next buffer. Whenever the buffer is full, the body gets one
	// that is four times as large. So the buffer is at most a small multiple of the bytes that have
	// arrived (D34).
	secondRead = 64 << 10

	// memoryWait is how long a body waits for memory from the shared budget.
	memoryWait = 10 * time.Second

	// In every period of this length, a client must send slowestBytes or the rest of the body. So a
	// client cannot occupy a connection by sending nothing.
	slowest      = 30 * time.Second
	slowestBytes = 256 << 10
)

// readBody reads the whole request body, up to maxSize bytes (D9). The caller owns the result.
// readBody stops reading as soon as it knows that the body is too large. net/http then gives the
// client time to read the response, and closes the connection.
func (c *call) readBody(maxSize int64, tooLarge error) ([]byte, error) {
	c.read = true
	length := c.r.ContentLength
	if length == 0 {
		return []byte{}, nil
	}
	if b, ok := c.r.Body.(interface{ Take() []byte }); ok && length <= maxSize {
		return c.takeBody(b, length) // an event loop serves the request, and its body has arrived
	}
	control := http.NewResponseController(c.w)
	size := min(length, maxSize)
	if length < 0 {
		size = min(maxSize, firstRead)
	}
	// The buffer has room for one byte more than the body, so that Read can report the end of the
	// body before the buffer is full.
	b := make([]byte, 0, min(size, firstRead)+1)
	err := error(nil)
	for err == nil {
		if len(b)%slowestBytes == 0 {
			_ = control.SetReadDeadline(time.Now().Add(slowest))
		}
		if len(b) == cap(b) {
			switch {
			case int64(len(b)) > maxSize:
				c.read = false
				return nil, tooLarge
			case length >= 0 && int64(len(b)) > length:
				return nil, errBodyBroken
			}
			if b, err = c.grow(b, length, maxSize); err != nil {
				c.read = false
				return nil, err
			}
			_ = control.SetReadDeadline(time.Now().Add(slowest))
		}
		// When the budget takes the borrowed memory back, it marks the loan as cut and sets a read
		// deadline in the past. This check must come after SetReadDeadline, which may have replaced
		// that deadline.
		if c.loan.IsCut() {
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
		_ = control.SetReadDeadline(time.Time{}) // the deadline must not apply to the next request
	}
	switch {
	case int64(len(b)) > maxSize:
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

// takeBody returns a body that has already arrived. If the body is large, takeBody borrows memory
// for it.
func (c *call) takeBody(b interface{ Take() []byte }, length int64) ([]byte, error) {
	if !c.borrowNow(length) {
		if err := c.borrow(length); err != nil {
			return nil, err
		}
	}
	c.received = length
	return b.Take(), nil
}

// borrowNow borrows memory for a body that has arrived, if the body is large. It does not wait, and
// returns false if it would have to.
func (c *call) borrowNow(length int64) bool {
	if length <= firstRead {
		return true
	}
	if c.loan == nil {
		c.loan = c.h.Bodies.Open(c.holder(), length, func() {}) // the function is empty: the body has arrived, so there is nothing to stop
	}
	return c.loan.TryGrow(length)
}

var (
	errMemory  = &weir.Error{Code: weir.Overloaded, Message: "this server has no memory free for another large body or batch; retry after the number of seconds in retry-after"}
	errBodyCut = &weir.Error{Code: weir.Overloaded, Message: "the body arrived too slowly while other requests waited for its memory; send it again after the number of seconds in retry-after"}
)

// grow returns a larger buffer with the content of b, and borrows the memory for it.
func (c *call) grow(b []byte, length, maxSize int64) ([]byte, error) {
	room := max(4*int64(cap(b)), secondRead)
	if length >= 0 {
		maxSize = min(maxSize, length)
	}
	room = min(room, maxSize+1)
	if c.loan == nil {
		final := maxSize + 1
		if length < 0 && final > budget.Small {
			final = -1 // the final size is not known, and may be small
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

// badBody returns the refusal of a body. The parameter what says what is wrong with it.
func badBody(what string) error { return jsonbody.Fault(what) }

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// borrow makes the call's loan at least this many bytes large. If the budget has too little memory,
// borrow waits for at most memoryWait, and then returns errMemory.
func (c *call) borrow(bytes int64) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), c.h.memoryWait)
	defer cancel()
	if err := c.loan.Grow(ctx, bytes); err != nil {
		return errMemory
	}
	return nil
}

// holder returns the key and project that are charged for the memory and the subscriptions of this
// call.
func (c *call) holder() budget.Holder {
	if c.grant == nil || !c.grant.Demo() {
		return holderOf(c.grant, noClient)
	}
	return holderOf(c.grant, c.client())
}

// holderOf returns the key and project of a caller. For a client of the demo, with the demo key or
// without a key, the client's address takes the place of the key.
func holderOf(g *access.Grant, client netip.Addr) budget.Holder {
	switch {
	case g == nil: // the call comes from Lend, which serves the dashboard
		return budget.Holder{Key: "dashboard"}
	case g.Demo():
		return budget.Holder{Project: string(g.Project()), Key: access.Network(client).String()}
	}
	return budget.Holder{Project: string(g.Project()), Key: g.KeyID()}
}

const (
	lingerTime  = 100 * time.Millisecond
	lingerBytes = 256 << 10
)

// linger gives an HTTP/2 client that is still sending its body a moment to read the response. When
// a handler returns without having read the body, net/http resets the stream. Some clients (curl
// before 8) then discard a response that they have not read yet. Over HTTP/1.1, net/http itself
// waits for the client.
func (c *call) linger() {
	control := http.NewResponseController(c.w)
	end := time.Now().Add(lingerTime)
	if control.Flush() != nil || control.SetReadDeadline(end) != nil {
		return
	}
	// A client that sends another lingerBytes is probably not reading the response yet. Stop
	// reading, so that flow control keeps the client from sending more, and wait until the time is
	// up.
	if _, err := io.CopyN(io.Discard, c.r.Body, lingerBytes); err == nil {
		select {
		case <-c.r.Context().Done():
		case <-time.After(time.Until(end)):
		}
	}
}
