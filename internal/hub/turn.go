package hub

import (
	"os"
	"runtime"
	"syscall"
)

// turns let a goroutine wait for everything else that can run. Go has no priorities, and
// runtime.Gosched is not enough: a goroutine that calls it over and over keeps the scheduler from
// looking whether a request has arrived, because the scheduler looks only when a core has no
// goroutine to run (or every 10 ms). Publishers would wait for that long, and again for the disk.
//
// So take waits the way a connection waits for a request: for a byte that it has itself written to
// a pipe. The scheduler finds the byte together with the requests that have arrived.
type turns struct {
	in, out *os.File
	poll    syscall.RawConn // nil: there is no pipe, and take only calls runtime.Gosched
}

func (t *turns) open() {
	in, out, err := os.Pipe()
	if err != nil {
		return // too many open files
	}
	if t.poll, err = in.SyscallConn(); err != nil {
		in.Close()
		out.Close()
		return
	}
	t.in, t.out = in, out
}

func (t *turns) close() {
	if t.poll != nil {
		t.in.Close()
		t.out.Close()
		t.poll = nil
	}
}

// take waits until a core has run all goroutines that were ready.
func (t *turns) take() {
	if t.poll == nil || t.await() != nil {
		t.close() // not every system can wait for a pipe
		runtime.Gosched()
	}
}

// await writes the byte only after RawConn.Read has forgotten that the pipe was ever readable, so
// that it always waits for the scheduler to find the byte.
func (t *turns) await() error {
	var b [1]byte
	written := false
	var failed error
	err := t.poll.Read(func(uintptr) bool {
		if written {
			return true
		}
		written = true
		_, failed = t.out.Write(b[:])
		return failed != nil
	})
	if err == nil {
		err = failed
	}
	if err == nil {
		_, err = t.in.Read(b[:])
	}
	return err
}
