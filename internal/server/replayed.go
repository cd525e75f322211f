package server

import (
	"bytes"
	"errors"
	"net"
	"sync"
)

// replayed is a connection that begins with what was read of it before, and reads ahead if it speaks HTTP/2.
//
// HTTP/2 of net/http reads each frame with two system calls, one for its nine bytes of header and one for the rest, although the
// frames of many small requests come together. So what follows a header is read together with whatever else is there. Where
// nothing is on the way, nobody holds memory for it: the wait is for a header, which is read into the caller's own nine bytes.
// HTTP/1.1 waits with a buffer of its own, and a second one would only lie beside it.
type replayed struct {
	net.Conn
	raw    []byte
	frames bool         // HTTP/2
	ahead  *aheadBuffer // that raw is in; nil: in none
}

func newReplayed(c net.Conn, raw []byte) *replayed {
	return &replayed{Conn: c, raw: raw, frames: bytes.HasPrefix(raw, []byte("PRI "))}
}

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
		c.raw, c.ahead = b[:n], b // an error will come again
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

// CloseWrite lets net/http say that it is done before it closes.
func (c *replayed) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if tcp, ok := c.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return errors.ErrUnsupported
}
