package server

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"sync"
)

// replayed is a connection that first returns data that was already read from it, and that reads
// ahead if it speaks HTTP/2. It also replaces the 431 of net/http (see oversized).
//
// net/http reads each HTTP/2 frame with two system calls, one for the nine bytes of its header and
// one for the rest, although the frames of many small requests often arrive together. So when
// net/http reads the rest of a frame, replayed reads everything that has arrived into a buffer from
// a pool.
//
// An idle connection holds no such buffer. It waits for a frame header, and a read of at most nine
// bytes goes directly into the buffer of the caller. Reading ahead is for HTTP/2 only: net/http
// buffers HTTP/1.1 itself.
type replayed struct {
	net.Conn
	raw    []byte       // data that Read returns before it reads from the connection
	frames bool         // the connection speaks HTTP/2
	ahead  *aheadBuffer // the pooled buffer that raw points into; nil if raw is not in one

	oversized http.Handler
}

// newReplayed returns a connection that begins with raw. It detects HTTP/2 by its preface.
func newReplayed(c net.Conn, raw []byte, oversized http.Handler) *replayed {
	return &replayed{Conn: c, raw: raw, frames: bytes.HasPrefix(raw, []byte("PRI ")), oversized: oversized}
}

// frameHeader is the length of the header of an HTTP/2 frame.
const frameHeader = 9

type aheadBuffer [16 << 10]byte

var aheadBuffers = sync.Pool{New: func() any { return new(aheadBuffer) }}

func (c *replayed) Read(p []byte) (int, error) {
	if len(c.raw) == 0 {
		if !c.frames || len(p) <= frameHeader || len(p) >= len(aheadBuffer{}) {
			return c.Conn.Read(p)
		}
		b := aheadBuffers.Get().(*aheadBuffer)
		n, err := c.Conn.Read(b[:])
		if n == 0 {
			aheadBuffers.Put(b)
			return 0, err
		}
		c.raw, c.ahead = b[:n], b // the next read returns the error again
	}
	n := copy(p, c.raw)
	if c.raw = c.raw[n:]; len(c.raw) == 0 {
		c.raw = nil
		if c.ahead != nil {
			aheadBuffers.Put(c.ahead)
			c.ahead = nil
		}
	}
	return n, nil
}

// Write writes p. If p is net/http's own 431 response, it writes the response of the handler for
// large header fields instead.
func (c *replayed) Write(p []byte) (int, error) {
	if c.frames || !bytes.HasPrefix(p, bareTooLarge) {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(tooLarge(c.oversized, c.RemoteAddr().String())); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite lets net/http close the sending side first, so that the client can still read the
// response.
func (c *replayed) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if tcp, ok := c.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return errors.ErrUnsupported
}
