package loop

import (
	"syscall"
	"testing"
	"time"
)

// busyResponse is a parked response that has some runs to send.
type busyResponse struct {
	quiet
	left int
}

func (b *busyResponse) Continue(buf []byte, idle bool) ([]byte, bool, bool) {
	b.continued++
	if b.left == 0 {
		return buf, false, false
	}
	b.left--
	return append(buf, make([]byte, 1000)...), false, false
}

// freePlace is the place of a connection that may always stay.
type freePlace struct{}

func (freePlace) Enter(Holder)   {}
func (freePlace) Begin() bool    { return true }
func (freePlace) Rest(time.Time) {}
func (freePlace) Leave()         {}

// Many subscribers that reconnect at once are served a few at a time, so that the loop can look for
// requests in between.
func TestAddsAreSpread(t *testing.T) {
	ep, err := syscall.EpollCreate1(0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(ep)
	l := &loop{poller: poller{inner: ep}, buf: make([]byte, 64<<10), now: time.Now(), set: &Loops{}}
	const n = 3 * wokenAtOnce
	var all []*busyResponse
	for range n {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fds[0])
		defer syscall.Close(fds[1])
		r := &busyResponse{left: 20}
		all = append(all, r)
		l.post(message{add: &conn{l: l, fd: fds[0], place: freePlace{}, parked: r}})
	}
	l.handleMessages()
	l.handleWoken()
	started, runs := 0, 0
	for _, r := range all {
		if r.continued > 0 {
			started++
		}
		runs += 20 - r.left
	}
	if started == 0 || started > wokenAtOnce {
		t.Errorf("one round of the loop continued %d responses and sent %d runs, want 1 to %d responses", started, runs, wokenAtOnce)
	}
}
