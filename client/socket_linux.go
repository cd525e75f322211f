package client

import "syscall"

// unsent is the number of unsent bytes that the kernel accepts for a connection. By default the
// kernel accepts megabytes, and a slow connection would look dead while the kernel sends them.
const unsent = 128 << 10

const tcpNotsentLowat = 25 // TCP_NOTSENT_LOWAT, which package syscall does not define

// limitUnsent is the Control function of a dialer. It ignores errors: without the option the
// connection still works, but the client may take a slow connection for dead too early.
func limitUnsent(_, _ string, c syscall.RawConn) error {
	c.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat, unsent) })
	return nil
}
