package loop

import (
	"syscall"
	"testing"
	"time"
)

// openPoller returns a poller that watches one end of a pair of sockets, and both ends.
func openPoller(t *testing.T) (p *poller, watched, other int) {
	t.Helper()
	p = new(poller)
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fds[0]); syscall.Close(fds[1]) })
	const events = syscall.EPOLLIN | edgeTriggered
	if err := syscall.EpollCtl(p.inner, syscall.EPOLL_CTL_ADD, fds[0], &syscall.EpollEvent{Events: events, Fd: int32(fds[0])}); err != nil {
		t.Fatal(err)
	}
	return p, fds[0], fds[1]
}

func send(t *testing.T, fd int) {
	t.Helper()
	if _, err := syscall.Write(fd, []byte("x")); err != nil {
		t.Error(err)
	}
}

// No event is missed, whether it happens before the loop sleeps, while it sleeps, or after it was
// woken by a message.
func TestPollerMissesNothing(t *testing.T) {
	p, watched, other := openPoller(t)
	var b [1]byte
	for round := range 3000 {
		switch round % 3 {
		case 0:
			send(t, other)
		case 1:
			go send(t, other)
		case 2: // a message comes first, and the event may come before or after it
			go send(t, other)
			p.wake()
		}
		for p.ready = 0; p.ready == 0; {
			p.setAlarm(time.Time{})
			if err := p.wait(); err != nil {
				t.Fatal(err)
			}
		}
		if p.ready != 1 || p.armed {
			t.Fatalf("round %d: %d events, armed: %v", round, p.ready, p.armed)
		}
		if _, err := read(watched, b[:]); err != nil {
			t.Fatal(err)
		}
	}
}

// The runtime does not watch the connections while the loop works. Otherwise each request that
// arrives would wake a thread.
func TestPollerIsArmedOnlyAsleep(t *testing.T) {
	p, _, other := openPoller(t)
	var outer [1]syscall.EpollEvent
	check := func(want int) {
		t.Helper()
		if n, err := syscall.EpollWait(p.outer, outer[:], 0); err != nil || n != want {
			t.Errorf("the outer descriptor has %d events, %v; want %d", n, err, want)
		}
	}
	send(t, other)
	check(0)
	if err := p.arm(true); err != nil {
		t.Fatal(err)
	}
	check(1)
	if err := p.wait(); err != nil || p.ready != 1 {
		t.Fatalf("%d events, %v", p.ready, err)
	}
	send(t, other)
	check(0)
}

// A poller wakes when the first wait of a connection ends.
func TestPollerAlarm(t *testing.T) {
	p, _, _ := openPoller(t)
	for _, until := range []time.Duration{time.Millisecond, time.Millisecond, -time.Second, time.Millisecond} {
		p.setAlarm(time.Now().Add(until))
		if err := p.wait(); err != nil || p.ready != 0 {
			t.Fatalf("%d events, %v", p.ready, err)
		}
	}
}
