package loop

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// Session is TLS on a connection that can move from a goroutine to an event loop and back. In a
// goroutine, the session uses a connection that blocks. A loop reads from its descriptor instead, and
// collects the records that the session writes, so that no call blocks. Package crypto/tls allows
// this: after an error of a read that is temporary, another read goes on where the first one stopped.
type Session struct {
	*tls.Conn
	state   tls.ConnectionState
	carrier carrier
	failed  error // what the next read returns
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

// State returns a description of the session. It is valid once a loop has had the session.
func (s *Session) State() *tls.ConnectionState { return &s.state }

// enter makes the session read with the function receive, which must not block.
func (s *Session) enter(receive func([]byte) (int, error)) {
	s.state = s.ConnectionState()
	s.carrier.receive = receive
}

// read decrypts what has arrived, as much as fits into b. At the end of the session it returns 0 and
// no error, and errLater if no data has arrived. The result more says that another read may return
// something although the poller reports nothing.
func (s *Session) read(b []byte) (n int, more bool, err error) {
	s.carrier.drained, s.carrier.received = false, 0
	for n < len(b) && s.failed == nil && (n == 0 || !s.isOdd(len(b))) {
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

// isOdd reports whether the last read has received far more than data: a client may ask for new keys
// with each byte that it sends. Such a session must leave its loop, because each answer takes
// time and memory.
func (s *Session) isOdd(most int) bool {
	return len(s.carrier.out) > 0 || s.carrier.received > 2*most
}

// seal encrypts b. The result is valid until the next call.
func (s *Session) seal(b []byte) ([]byte, error) {
	_, err := s.Conn.Write(b)
	return s.carrier.take(), err
}

// end returns the record that tells the client that the session ends.
func (s *Session) end() []byte {
	_ = s.CloseWrite() // cannot fail: the carrier accepts everything
	return s.carrier.take()
}

// carrier is the connection on which a session reads and writes records.
type carrier struct {
	net.Conn
	receive func([]byte) (int, error) // reads from the connection while a loop has it; otherwise nil
	out     []byte                    // records that were not sent yet

	// The last call of Session.read has set these fields.
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

// Write writes records. While a loop has the connection, they are kept for whoever sends next.
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

// take returns the records that were not sent yet. The result is valid until the next write.
func (c *carrier) take() []byte {
	b := c.out
	c.out = b[:0]
	if cap(b) > maxHead {
		c.out = nil
	}
	return b
}

// NetConn returns the connection that blocks.
func (c *carrier) NetConn() net.Conn { return c.Conn }

// Close does nothing while a loop has the connection, which the loop closes itself.
func (c *carrier) Close() error {
	if c.receive != nil {
		return nil
	}
	return c.Conn.Close()
}

// SetWriteDeadline does nothing while a loop has the connection.
func (c *carrier) SetWriteDeadline(t time.Time) error {
	if c.receive != nil {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}
