package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"syscall"
	"testing"
)

// The kernel holds little for a client that reads nothing: Linux doubles what is asked for, for its own bookkeeping.
func TestWriteBuffer(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
		if w.proto == "HTTP/3.0" {
			t.Skip("one socket for all")
		}
		s := listen(t)
		conns := make(chan net.Conn, 1)
		hook := func(ctx context.Context, c net.Conn) context.Context { conns <- c; return ctx }
		s.http.http.ConnContext, s.https.http.ConnContext = hook, hook
		s.Serve(http.NotFoundHandler(), secured())
		defer s.Shutdown(context.Background())
		get(t, w.client(t), w.url(s))
		c := <-conns
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		if clear, ok := c.(*replayed); ok {
			c = clear.Conn
		}
		raw, err := c.(*counted).TCPConn.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var size int
		raw.Control(func(fd uintptr) { size, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF) })
		if err != nil || size > 2*writeBuffer {
			t.Errorf("the buffer has %d bytes (%v), want %d at most", size, err, 2*writeBuffer)
		}
	})
}
