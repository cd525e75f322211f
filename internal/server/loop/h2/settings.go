package h2

import "encoding/binary"

// settings handles the settings of the client.
func (c *Conn) settings(f frame) {
	switch {
	case f.stream != 0:
		c.fail(protocolError)
		return
	case f.has(flagAck) && len(f.payload) > 0 || len(f.payload)%6 != 0:
		c.fail(frameSizeError)
		return
	case f.has(flagAck):
		return
	case len(f.payload)/6 > mostSettings:
		c.fail(protocolError)
		return
	}
	for p := f.payload; len(p) > 0; p = p[6:] {
		if code := c.set(binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])); code != noError {
			c.fail(code)
			return
		}
	}
	c.settled, c.changed, c.opened = true, true, true
	if c.unacked++; len(c.tunnels) == 0 {
		c.acknowledge()
	}
}

// settle passes the settings of the client on.
func (c *Conn) settle() {
	c.changed = false
	for _, t := range c.tunnels {
		t.settings()
	}
	c.acknowledge()
}

// acknowledge acknowledges settings of the client, unless a tunnel does not obey them yet. Some
// clients do so themselves only when they are acknowledged.
func (c *Conn) acknowledge() {
	for _, t := range c.tunnels {
		if t.unacked {
			return
		}
	}
	for ; c.unacked > 0; c.unacked-- {
		c.out = appendHead(c.out, 0, kindSettings, flagAck, 0)
	}
	c.acked = [2]int64{c.firstWindow, int64(c.frame)}
	c.opened = true
}

// accepts returns the first window of a stream, and the maximum size of a frame, that the client
// accepts before and after the acknowledgement of its settings.
func (c *Conn) accepts() (window, frame int64) {
	return min(c.firstWindow, c.acked[0]), min(int64(c.frame), c.acked[1])
}

// mostSettings limits the number of settings in a frame, as net/http does.
const mostSettings = 100

func (c *Conn) set(id uint16, value uint32) Code {
	switch id {
	case settingTable:
		c.encoder.limit(value)
	case settingPush:
		if value > 1 {
			return protocolError
		}
	case settingWindow:
		if value > mostWindow {
			return flowControlError
		}
		c.firstWindow = int64(value)
	case settingFrame:
		if value < leastFrame || value > mostFrame {
			return protocolError
		}
		c.frame = int(value)
	}
	return noError
}
