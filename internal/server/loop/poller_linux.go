package loop

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// poller waits for events of connections. No thread is blocked meanwhile: the runtime's own poller
// watches for them. A thread that blocked in epoll_wait would give up its processor, and would have
// to get one again before it could go on.
//
// There are two epoll descriptors, one inside the other. The connections are registered with the
// inner one. The runtime watches the outer one, in which the inner one is armed only while the loop
// sleeps. With a single descriptor, every request that arrives while the loop works would wake a
// thread of the runtime, which would find nothing to do. When there was only one, this happened
// more than once for every two publishes.
type poller struct {
	inner, outer int
	file         *os.File // the outer descriptor
	raw          syscall.RawConn
	poll         func(uintptr) bool // the method rest; kept here, because creating a method value for each wait would allocate
	armed        bool               // the outer descriptor reports events of the inner one
	alarm        time.Time          // the read deadline of file, which ends the sleep of the loop; zero if there is none
	failure      error              // why the method rest could not look for events
	events       [256]syscall.EpollEvent
	ready        int // number of valid elements of events
}

// open creates the descriptors.
func (p *poller) open() error {
	var err error
	if p.inner, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("create an epoll descriptor: %w", err)
	}
	if p.outer, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		syscall.Close(p.inner)
		return fmt.Errorf("create an epoll descriptor: %w", err)
	}
	p.poll = p.rest
	err = syscall.EpollCtl(p.outer, syscall.EPOLL_CTL_ADD, p.inner, &syscall.EpollEvent{Fd: int32(p.inner)})
	if err == nil {
		err = syscall.SetNonblock(p.outer, true) // otherwise NewFile does not register the descriptor with the runtime
	}
	p.file = os.NewFile(uintptr(p.outer), "epoll")
	if err == nil {
		p.raw, err = p.file.SyscallConn()
	}
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // fails if the runtime does not watch the descriptor
	}
	if err != nil {
		p.close()
		return fmt.Errorf("prepare an epoll descriptor: %w", err)
	}
	return nil
}

func (p *poller) close() {
	p.file.Close()
	syscall.Close(p.inner)
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// wake makes wait() return. It does so by moving the deadline into the past, which needs no system
// call. Any goroutine may call it.
func (p *poller) wake() { p.file.SetReadDeadline(longAgo) }

// wait returns when there are events, when wake has been called since the last call of setAlarm, or at
// the time of the alarm. It may also return earlier.
func (p *poller) wait() error {
	p.ready = 0
	err := p.raw.Read(p.poll)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.alarm, err = longAgo, nil // so that setAlarm sets another deadline
	}
	if p.armed {
		err = errors.Join(err, p.arm(false))
	}
	err, p.failure = errors.Join(err, p.failure), nil
	return err
}

// setAlarm sets the time at which wait returns at the latest. If the time is zero, there is no
// alarm. A call of wake before setAlarm may have no effect, so only later calls of wake count. If
// the new time is later than the old one, the deadline stays as it was: waking too early does no
// harm.
func (p *poller) setAlarm(due time.Time) {
	if p.alarm == longAgo || !due.IsZero() && (p.alarm.IsZero() || due.Before(p.alarm)) {
		p.file.SetReadDeadline(due)
		p.alarm = due
	}
}

// rest gets the events that have happened. If there are none, it arms the inner descriptor and
// returns false, and the runtime waits. The runtime's poller clears its own record of events before
// it calls rest, and rest looks once more after arming. So no event is missed.
func (p *poller) rest(uintptr) bool {
	p.failure = p.look()
	if p.ready == 0 && p.failure == nil && !p.armed {
		if p.failure = p.arm(true); p.failure == nil {
			p.failure = p.look()
		}
	}
	return p.ready > 0 || p.failure != nil
}

// look gets the events that have happened, without waiting.
func (p *poller) look() error {
	n, err := epollWait(p.inner, p.events[:])
	p.ready = max(n, 0)
	if err != nil && !errors.Is(err, syscall.EINTR) {
		return fmt.Errorf("look for events: %w", err)
	}
	return nil
}

// arm sets whether the outer descriptor reports events of the inner one.
func (p *poller) arm(on bool) error {
	e := syscall.EpollEvent{Fd: int32(p.inner)}
	if on {
		e.Events = syscall.EPOLLIN
	}
	if err := syscall.EpollCtl(p.outer, syscall.EPOLL_CTL_MOD, p.inner, &e); err != nil {
		return fmt.Errorf("arm an epoll descriptor: %w", err)
	}
	p.armed = on
	return nil
}
