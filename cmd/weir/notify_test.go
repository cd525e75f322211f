package main

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// notify works with a socket that is a file and with an abstract socket.
func TestNotify(t *testing.T) {
	notify("READY=1") // has no effect, because NOTIFY_SOCKET is not set
	for _, name := range []string{filepath.Join(t.TempDir(), "n"), "@weir-test-" + filepath.Base(t.TempDir()) + t.Name()} {
		addr := &net.UnixAddr{Name: name, Net: "unixgram"}
		if name[0] == '@' {
			addr.Name = "\x00" + name[1:]
		}
		l, err := net.ListenUnixgram("unixgram", addr)
		if err != nil {
			t.Skipf("this system has no such socket: %v", err)
		}
		defer l.Close()
		t.Setenv("NOTIFY_SOCKET", name)
		notify("READY=1")
		l.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 100)
		n, err := l.Read(b)
		if err != nil || string(b[:n]) != "READY=1" {
			t.Errorf("%s: got %q, %v; want READY=1", name, b[:n], err)
		}
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	notify("READY=1")
}
