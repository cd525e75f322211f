package loop

import (
	"net/http"
	"syscall"
	"testing"
	"time"
)

// collecting takes all requests, and keeps their exchanges.
type collecting struct{ exchanges []*exchange }

func (h *collecting) ServeHTTP(http.ResponseWriter, *http.Request) {}

func (h *collecting) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	h.exchanges = append(h.exchanges, w.(*exchange))
	return true, false
}

// accepting answers the request of an exchange.
type accepting struct{ x *exchange }

func (a accepting) Finish() { a.x.WriteHeader(http.StatusAccepted) }

// After its response, an idle connection does not hold on to the exchange of its last request, even
// if the loop does not keep the exchange for reuse.
func TestIdleConnectionHoldsNoExchange(t *testing.T) {
	ep, err := syscall.EpollCreate1(0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(ep)
	h := &collecting{}
	l := &loop{poller: poller{inner: ep}, buf: make([]byte, 64<<10), now: time.Now(), set: &Loops{later: h}}
	for i := range l.waits {
		l.waits[i].limit = time.Hour
	}
	const n = mostUsed + 10
	var all []*conn
	for range n {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fds[1])
		c := &conn{l: l, fd: fds[0], place: freePlace{}, remote: "x"}
		all = append(all, c)
		l.post(message{add: c})
		if _, err := syscall.Write(fds[1], []byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")); err != nil {
			t.Fatal(err)
		}
	}
	l.handleMessages()
	l.poller.look()
	l.handleEvents()
	if len(h.exchanges) != n {
		t.Fatalf("%d requests began, want %d", len(h.exchanges), n)
	}
	for _, x := range h.exchanges {
		x.Ready(accepting{x})
	}
	l.handleMessages()
	for i, c := range all {
		if b, ok := c.previous.request.Body.(*body); ok {
			t.Fatalf("connection %d still holds the body %p of an exchange", i, b)
		}
		syscall.Close(c.fd)
	}
}

// Small bodies that a loop keeps for reuse make room for larger ones.
func TestSmallBodiesMakeRoom(t *testing.T) {
	l := &loop{}
	for range mostUsed {
		l.bodies = append(l.bodies, make([]byte, 0, leastBody))
	}
	if b := l.body(leastBody + 1); b != nil || len(l.bodies) != mostUsed-1 {
		t.Errorf("got a body of %d bytes, and %d are kept, want none and %d", cap(b), len(l.bodies), mostUsed-1)
	}
}
