package loop

import (
	"bytes"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// A body that arrives in many pieces is not copied with each piece.
func TestPiecesAreCopiedOnce(t *testing.T) {
	ep, err := syscall.EpollCreate1(0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(ep)
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[1])
	h := &collecting{}
	l := &loop{poller: poller{inner: ep}, buf: make([]byte, maxHead+MaxBody), now: time.Now(), set: &Loops{later: h}}
	for i := range l.waits {
		l.waits[i].limit = time.Hour
	}
	c := &conn{l: l, fd: fds[0], place: freePlace{}, remote: "x"}
	l.post(message{add: c})
	l.handleMessages()
	defer syscall.Close(c.fd)
	content := bytes.Repeat([]byte("0123456789abcdef"), MaxBody/16)
	raw := append(fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(content)), content...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const piece = 64
	for from := 0; from < len(raw); from += piece {
		if _, err := syscall.Write(fds[1], raw[from:min(from+piece, len(raw))]); err != nil {
			t.Fatal(err)
		}
		l.poller.look()
		l.handleEvents()
	}
	runtime.ReadMemStats(&after)
	if len(h.exchanges) != 1 || !bytes.Equal(h.exchanges[0].in.left, content) {
		t.Fatal("the request did not begin with the whole body")
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 16*MaxBody {
		t.Errorf("the loop allocated %d bytes for a body of %d bytes", n, len(content))
	}
}
