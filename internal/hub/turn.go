package hub

import (
	"os"
	"runtime"
	"syscall"
)

// turns lets a goroutine step aside until all other goroutines that are ready have run. Go has no
// priorities, and runtime.Gosched is not enough. The scheduler checks the network for new requests
// only when a core has no goroutine to run, or every 10 ms. A goroutine that calls Gosched over and
// over is always ready, so new requests would be noticed up to 10 ms late. Publishers would wait
// for that long, and then again for the disk.
//
// So the method take waits in the same way as a connection that waits for a request: it writes a
// byte to a pipe and waits until the scheduler finds the byte. When the scheduler looks for the
// byte, it also finds the requests that have arrived.
type turns struct {
	in, out *os.File
	poll    syscall.RawConn // nil if there is no pipe; take then only calls runtime.Gosched
}

func (t *turns) open() {
	in, out, err := os.Pipe()
	if err != nil {
		return // most likely too many files are open
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

// await waits until the scheduler finds the byte in the pipe. It writes the byte inside the
// callback of RawConn.Read: by then, Read has reset its record of whether the pipe is readable, so
// Read cannot return before the scheduler has looked at the pipe.
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
