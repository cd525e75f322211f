package loop

import (
	"errors"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// taker is a Later and a Flusher that takes every request over.
type taker struct{}

func (taker) ServeHTTP(http.ResponseWriter, *http.Request)                     {}
func (taker) ServeLater(http.ResponseWriter, *http.Request) (taken, done bool) { return true, false }
func (taker) Flush()                                                           {}

// If a handler has taken over a publish, the loop calls Flush, also if a subscription follows in the
// same pass.
func TestFlushAfterSubscription(t *testing.T) {
	l := &loop{set: &Loops{later: taker{}, flusher: taker{}}}
	for _, c := range []struct {
		method    string
		unflushed bool
	}{{"GET", false}, {"POST", true}, {"GET", true}} {
		if !(&conn{l: l, place: freePlace{}, previous: new(remembered)}).begin(&http.Request{Method: c.method}, nil) {
			t.Fatalf("%s was not taken over", c.method)
		}
		if l.unflushed != c.unflushed {
			t.Errorf("after a %s, unflushed is %v, want %v", c.method, l.unflushed, c.unflushed)
		}
	}
}

// leaver is a parked response that counts the calls of Left.
type leaver struct {
	quiet
	left []error
}

func (l *leaver) Left(err error) { l.left = append(l.left, err) }

// A parked response whose beginning cannot be sent is told so once.
func TestLeftBeforeEntered(t *testing.T) {
	ep, err := syscall.EpollCreate1(0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(ep)
	for name, cut := range map[string]bool{"the connection was cut off": true, "the client has left": false} {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		syscall.Close(fds[1])
		l := &loop{poller: poller{inner: ep}, now: time.Now(), set: &Loops{}}
		l.set.all = []*loop{l}
		p := &leaver{}
		c := &conn{l: l, fd: fds[0], place: freePlace{}}
		l.conns, l.open = make([]*conn, c.fd+1), 1
		l.conns[c.fd] = c
		x := l.exchange()
		x.c, x.pooled = c, true
		x.receive(&http.Request{Method: "GET"}, nil)
		c.exchange = x
		x.Park(p)
		if cut {
			c.close()
		}
		l.finish(x)
		if len(p.left) != 1 || !errors.Is(p.left[0], net.ErrClosed) {
			t.Errorf("%s: Left was called with %v, want one call with net.ErrClosed", name, p.left)
		}
		if c.fd >= 0 || l.open != 0 {
			t.Errorf("%s: the connection is still open", name)
		}
	}
}
