package server

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"testing"
)

// The kernel holds little for a client that reads nothing: Linux doubles what is asked for, for its own bookkeeping.
func TestWriteBuffer(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, func(http.ResponseWriter, *http.Request) {})
			conns := make(chan net.Conn, 1)
			s.http.ConnContext = func(ctx context.Context, c net.Conn) context.Context { conns <- c; return ctx }
			s.Serve()
			defer s.Shutdown(context.Background())
			resp, err := client(t, h2).Get("http://" + s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			raw, err := (<-conns).(*replayed).Conn.(*net.TCPConn).SyscallConn()
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
}
