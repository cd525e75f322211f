package loop

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// Session is a TLS session that can move from a goroutine to an event loop and back. In a goroutine,
// it uses a connection that blocks. In a loop, no call blocks: the session reads what has arrived at
// the descriptor, and the loop sends the records that the session has written. Package crypto/tls
// allows this: if a read fails with a temporary error, the next read continues where it stopped.
type Session struct {
	*tls.Conn
	state   tls.ConnectionState // set when the session enters a loop
	carrier carrier
	failed  error // returned by the next read
}

// NewSession returns a session on a connection. The caller does the handshake.
func NewSession(c net.Conn, config *tls.Config) *Session {
	s := &Session{carrier: carrier{Conn: c}}
	s.Conn = tls.Server(&s.carrier, config)
	return s
}

// Use makes the session use a connection that blocks. Call it when a loop has handed over the
// connection.
func (s *Session) Use(c net.Conn) { s.carrier.Conn, s.carrier.receive = c, nil }

// enter makes the session read with the function receive, which must not block.
func (s *Session) enter(receive func([]byte) (int, error)) {
	s.state = s.ConnectionState()
	s.carrier.receive = receive
}

// read decrypts what has arrived, as much as fits into b. At the end of the session it returns 0 and
// no error, and errLater if no data has arrived. If the result more is true, another read may
// return something even if the poller reports nothing.
func (s *Session) read(b []byte) (n int, more bool, err error) {
	s.carrier.drained, s.carrier.received = false, 0
	for n < len(b) && s.failed == nil && (n == 0 || !s.isCostly(len(b))) {
		m, err := s.Conn.Read(b[n:])
		n += m
		switch {
		case err == nil:
		case err == errLater && n == 0:
			return 0, s.carrier.received > 0, err
		case err == errLater:
			return n, false, nil
		default:
			s.failed = err
		}
	}
	if n > 0 || s.failed == nil {
		return n, true, nil
	}
	if errors.Is(s.failed, io.EOF) {
		return 0, false, nil
	}
	return 0, false, s.failed
}

// isCostly reports whether the last read, which had room for so many bytes, received much more than
// data. A client can request new keys with each byte that it sends, and each reply takes time and
// memory. Such a session must leave its loop.
func (s *Session) isCostly(most int) bool {
	return len(s.carrier.out) > 0 || s.carrier.received > 2*most
}

// seal encrypts b. The result is valid until the next call. It also has what the session itself has to
// send.
func (s *Session) seal(b []byte) ([]byte, error) {
	var err error
	if len(b) > 0 {
		_, err = s.Conn.Write(b)
	}
	return s.carrier.take(), err
}

// end returns the record that tells the client that the session ends.
func (s *Session) end() []byte {
	_ = s.CloseWrite() // cannot fail: the carrier accepts everything
	return s.carrier.take()
}

// carrier transports the records of a session.
type carrier struct {
	net.Conn                           // a connection that blocks; unused in a loop
	receive  func([]byte) (int, error) // reads without blocking; nil unless a loop has the session
	out      []byte                    // records that are not sent yet

	// These fields belong to the last call of Session.read.
	drained  bool // everything that had arrived was read
	received int  // number of bytes that were read
}

// errLater means that nothing has arrived.
var errLater net.Error = later{}

type later struct{}

func (later) Error() string   { return "nothing has arrived" }
func (later) Timeout() bool   { return true }
func (later) Temporary() bool { return true }

func (c *carrier) Read(p []byte) (int, error) {
	if c.receive == nil {
		return c.Conn.Read(p)
	}
	if c.drained {
		return 0, errLater
	}
	n, err := c.receive(p)
	c.drained = n < len(p) // the loop learns from the poller when more arrives
	c.received += max(n, 0)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

// Write sends records. In a loop, it only stores them: the loop sends them with the next response,
// or the first Write after the handover sends them.
func (c *carrier) Write(p []byte) (int, error) {
	if c.receive != nil {
		c.out = append(c.out, p...)
		return len(p), nil
	}
	if len(c.out) > 0 {
		if _, err := c.Conn.Write(c.take()); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// take returns the stored records. The result is valid until the next Write.
func (c *carrier) take() []byte {
	b := c.out
	c.out = b[:0]
	if cap(b) > maxHead {
		c.out = nil
	}
	return b
}

// NetConn returns the connection that blocks, like tls.Conn.NetConn.
func (c *carrier) NetConn() net.Conn { return c.Conn }

// Close does nothing in a loop, because the loop closes the descriptor itself.
func (c *carrier) Close() error {
	if c.receive != nil {
		return nil
	}
	return c.Conn.Close()
}

// SetWriteDeadline does nothing in a loop.
func (c *carrier) SetWriteDeadline(t time.Time) error {
	if c.receive != nil {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}
