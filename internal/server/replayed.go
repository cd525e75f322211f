package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime"
	"sync"

	"weir/internal/server/loop"
)

// replayed is a connection that net/http serves. Its Read first returns the data that an event loop
// has already read. If a client speaks HTTP/2 without TLS, replayed then reads ahead. Without TLS, it
// also replaces the 431 response of net/http (see bareTooLarge).
//
// To read ahead is to read more than the caller asked for. net/http reads each HTTP/2 frame with
// two system calls, one for the nine bytes of the frame header and one for the rest, although the
// frames of many small requests often arrive together. So when net/http reads the rest of a frame,
// replayed reads everything that has arrived into a buffer from a pool.
//
// An idle connection uses no such buffer. On an idle connection, net/http waits for a frame header,
// and a read of at most nine bytes goes directly into the buffer of the caller. Only HTTP/2
// connections read ahead, because net/http itself buffers HTTP/1.1.
type replayed struct {
	net.Conn
	raw    []byte       // data that Read returns before it reads from the connection
	frames bool         // the connection speaks HTTP/2
	fresh  bool         // nothing was read yet, so it is not known whether the connection speaks HTTP/2
	ahead  *aheadBuffer // the pooled buffer that raw points into; nil if raw is not part of one

	oversized http.Handler // nil over TLS
}

// newReplayed returns a connection whose Read returns raw first. It treats the connection as HTTP/2
// if raw starts with the preface of HTTP/2.
func newReplayed(c net.Conn, raw []byte, oversized http.Handler) *replayed {
	return &replayed{Conn: c, raw: raw, frames: bytes.HasPrefix(raw, []byte(preface)), oversized: oversized}
}

// replayedTLS is a connection over TLS that an event loop has handed over. net/http calls
// ConnectionState, and sets http.Request.TLS to the result.
type replayedTLS struct {
	*replayed
	session *loop.Session
}

func (c replayedTLS) ConnectionState() tls.ConnectionState { return c.session.ConnectionState() }

// preface is what a client that speaks HTTP/2 sends first.
const preface = "PRI "

// frameHeader is the length of the header of an HTTP/2 frame.
const frameHeader = 9

type aheadBuffer [16 << 10]byte

var aheadBuffers = sync.Pool{New: func() any { return new(aheadBuffer) }}

func (c *replayed) Read(p []byte) (int, error) {
	if len(c.raw) == 0 {
		if !c.frames || len(p) <= frameHeader || len(p) >= len(aheadBuffer{}) {
			n, err := c.Conn.Read(p)
			if c.fresh && n > 0 {
				c.fresh, c.frames = false, bytes.HasPrefix(p[:n], []byte(preface))
			}
			return n, err
		}
		b := aheadBuffers.Get().(*aheadBuffer)
		n, err := c.Conn.Read(b[:])
		if n == 0 {
			aheadBuffers.Put(b)
			return 0, err
		}
		c.raw, c.ahead = b[:n], b // if Read returned an error with the data, the next Read returns the error again
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

// Write writes p. If p is net/http's own 431 response, Write replaces it with the response of the
// handler for large header fields.
//
// Over HTTP/2, Write lets other goroutines run first. net/http writes as soon as it has one
// response. While it writes, it collects the responses that become ready, and sends them with the
// next write. When the disk has stored a group of publishes, many requests of a connection become
// ready at the same time. Their handlers can run while the first write waits here. Then the first
// write carries one response, and the second write carries all the others. Otherwise each write
// could end before the next response is ready, and every response would need a write of its own.
func (c *replayed) Write(p []byte) (int, error) {
	if c.frames {
		runtime.Gosched()
		return c.Conn.Write(p)
	}
	if c.oversized == nil || !bytes.HasPrefix(p, bareTooLarge) {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(tooLarge(c.oversized, c.RemoteAddr().String())); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite closes the sending side of the connection. net/http calls it before Close, so that the
// client can still read the response.
func (c *replayed) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if tcp, ok := c.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return errors.ErrUnsupported
}
