package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// talker is a connection of the load generator that sends a request, waits for the response, and
// repeats. One thread serves all of them (see talk).
type talker struct {
	fd     int
	next   func() []byte             // returns the next request
	length func([]byte) (int, error) // returns the length of the response at the start of the bytes, or 0 if it is not complete

	unsent   []byte
	waiting  bool // for the socket to accept more bytes
	received []byte
	since    time.Time
}

// connect opens a connection.
func connect(addr string, next func() []byte, length func([]byte) (int, error)) (*talker, error) {
	to, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	t := &talker{fd: fd, next: next, length: length, received: make([]byte, 0, 4<<10)}
	if err := errors.Join(unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}),
		unix.SetNonblock(fd, true), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return t, nil
}

// talk drives the connections until the time is up, and measures the latency of each request and
// the CPU time, which it reads with the function cpu. It uses one thread and few system calls, so
// that the load generator takes as little as possible of a machine that it shares with the server.
// The parameter size is the number of bytes per request.
func talk(talkers []*talker, size int, span time.Duration, cpu func() time.Duration) (r row, err error) {
	err = on(generatorCore, func() error { r, err = talkHere(talkers, size, span, cpu); return err })
	return r, err
}

// talkHere does the work of talk in the current thread.
func talkHere(talkers []*talker, size int, span time.Duration, cpu func() time.Duration) (row, error) {
	poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return row{}, err
	}
	defer unix.Close(poller)
	for i, t := range talkers {
		if err := unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, t.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return row{}, err
		}
	}
	var taken []time.Duration
	before, start := cpu(), time.Now()
	deadline, open := start.Add(span), len(talkers)
	for i, t := range talkers {
		if err := t.ask(poller, i, start); err != nil {
			return row{}, err
		}
	}
	events := make([]unix.EpollEvent, len(talkers))
	for open > 0 {
		n, err := unix.EpollWait(poller, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return row{}, err
		}
		for _, e := range events[:n] {
			t := talkers[e.Fd]
			if t.waiting {
				err = t.send(poller, int(e.Fd))
			}
			done := false
			if err == nil && e.Events&^unix.EPOLLOUT != 0 {
				done, err = t.receive()
			}
			if err != nil {
				return row{}, err
			}
			if !done {
				continue
			}
			now := time.Now()
			taken = append(taken, now.Sub(t.since))
			if !now.Before(deadline) {
				open--
			} else if err := t.ask(poller, int(e.Fd), now); err != nil {
				return row{}, err
			}
		}
	}
	return measured(taken, size, time.Since(start), cpu()-before), nil
}

// ask sends the next request, as much of it as the socket takes.
func (t *talker) ask(poller, i int, now time.Time) error {
	t.unsent, t.since = t.next(), now
	return t.send(poller, i)
}

// send sends more of the request, and waits for the socket if it takes no more.
func (t *talker) send(poller, i int) error {
	for len(t.unsent) > 0 {
		n, err := unix.Write(t.fd, t.unsent)
		if err == unix.EAGAIN {
			if t.waiting {
				return nil
			}
			t.waiting = true
			return unix.EpollCtl(poller, unix.EPOLL_CTL_MOD, t.fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT, Fd: int32(i)})
		}
		if err != nil {
			return err
		}
		t.unsent = t.unsent[n:]
	}
	if !t.waiting {
		return nil
	}
	t.waiting = false
	return unix.EpollCtl(poller, unix.EPOLL_CTL_MOD, t.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)})
}

// receive reads from the socket and reports whether the response is complete.
func (t *talker) receive() (done bool, err error) {
	if len(t.received) == cap(t.received) {
		t.received = slices.Grow(t.received, cap(t.received))
	}
	n, err := unix.Read(t.fd, t.received[len(t.received):cap(t.received)])
	if err == unix.EAGAIN {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if n == 0 {
		return false, fmt.Errorf("%w: the server closed the connection after %q", errAnswer, t.received)
	}
	t.received = t.received[:len(t.received)+n]
	length, err := t.length(t.received)
	if err != nil || length == 0 {
		return false, err
	}
	t.received = t.received[:copy(t.received, t.received[length:])]
	return true, nil
}

// closeAll closes the connections.
func closeAll(talkers []*talker) {
	for _, t := range talkers {
		unix.Close(t.fd)
	}
}

// responseLength returns the length of the HTTP/1.1 response at the start of b, or 0 if it is not
// complete. It reads only the status and the length of the body. Any status other than 2xx is an
// error.
func responseLength(b []byte) (int, error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, nil
	}
	length := 0 // of a response without a body, such as 204
	if _, rest, ok := bytes.Cut(b[:end+2], []byte("\r\nContent-Length: ")); ok {
		digits, _, _ := bytes.Cut(rest, []byte("\r"))
		var err error
		if length, err = strconv.Atoi(string(digits)); err != nil {
			return 0, err
		}
	} else if bytes.Contains(b[:end], []byte("chunked")) {
		return 0, fmt.Errorf("%w: a chunked body: %s", errAnswer, b)
	}
	if length += end + 4; length > len(b) {
		return 0, nil
	}
	if b[9] != '2' {
		return 0, fmt.Errorf("%w: %s", errAnswer, b)
	}
	return length, nil
}
