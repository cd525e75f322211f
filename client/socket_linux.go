package client

import "syscall"

// unsent is how many bytes that are not yet sent the kernel accepts. It accepts megabytes otherwise,
// and a slow connection would look dead while it empties that buffer.
const unsent = 128 << 10

const tcpNotsentLowat = 25 // TCP_NOTSENT_LOWAT, which package syscall does not define

// limitUnsent is the Control function of a dialer. It ignores errors: without the option, the
// connection works, and is only taken for dead sooner.
func limitUnsent(_, _ string, c syscall.RawConn) error {
	c.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat, unsent) })
	return nil
}
