package server

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"testing"
)

// The kernel's send buffer of every connection is small. Its size is twice writeBuffer, because
// Linux doubles the requested size for its own bookkeeping.
func TestWriteBuffer(t *testing.T) {
	overEach(t, func(t *testing.T, w wire) {
		if w.proto == "HTTP/3.0" {
			t.Skip("HTTP/3 has one socket for all connections")
		}
		s := listen(t)
		conns := make(chan net.Conn, 1)
		hook := func(ctx context.Context, c net.Conn) context.Context { conns <- c; return ctx }
		s.http.http.ConnContext, s.https.http.ConnContext = hook, hook
		s.Serve(http.NotFoundHandler(), secured())
		defer s.Shutdown(context.Background())
		get(t, w.client(t), w.url(s))
		raw, err := countedIn(<-conns).TCPConn.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var size int
		raw.Control(func(fd uintptr) { size, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF) })
		if err != nil || size > 2*writeBuffer {
			t.Errorf("the send buffer is %d bytes (%v), want at most %d", size, err, 2*writeBuffer)
		}
	})
}
