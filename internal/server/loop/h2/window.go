package h2

import "encoding/binary"

// grant returns how much larger the window of a connection is than the first one. net/http does not
// tell the client of a small difference, and treats it as 0.
func (l *Limits) grant() int64 {
	const least = 4 << 10
	if more := l.Window - firstWindow; more >= least {
		return int64(more)
	}
	return 0
}

// window handles an update of a window.
func (c *Conn) window(f frame) {
	if len(f.payload) != 4 {
		c.fail(frameSizeError)
		return
	}
	more := int64(binary.BigEndian.Uint32(f.payload) & mostWindow)
	switch s := c.streams[f.stream]; {
	case more == 0 && (f.stream == 0 || c.isUnused(f.stream)), c.isUnused(f.stream) && f.stream != 0:
		c.fail(protocolError)
	case more == 0:
		c.end(f.stream, protocolError)
	case f.stream == 0:
		if c.send += more; c.send > mostWindow {
			c.fail(flowControlError)
			return
		}
		c.opened = true
	case s == nil:
	case s.tunnel != nil:
		if c.changed {
			c.settle() // in the order in which the client has sent both
		}
		s.tunnel.put(frame{kindWindow, 0, s.inner, f.payload})
	default:
		if s.more += more; c.firstWindow+s.more > mostWindow {
			c.end(f.stream, flowControlError)
			return
		}
		c.opened = true
	}
}

// owe records that the client may send n bytes more. The client is told when that is worth a frame.
func (c *Conn) owe(n int64) {
	if c.owed += n; c.owed >= int64(c.limits.Window)/2 || c.owed >= c.receive {
		c.grant(c.owed)
		c.receive, c.owed = c.receive+c.owed, 0
	}
}

func (c *Conn) grant(n int64) {
	if n > 0 {
		c.out = appendNumber(c.out, kindWindow, 0, uint32(n))
	}
}
