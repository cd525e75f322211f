package server

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// While a server runs, goroutines start with more stack than a publish over HTTP/2 needs. After
// Shutdown they start with as little as before.
func TestRaisedStacks(t *testing.T) {
	s := listen(t)
	if n := grows(); n < 50 {
		t.Skipf("only %d of 100 stacks had to grow without a server", n)
	}
	s.Serve(http.HandlerFunc(mirror), secured())
	for end := time.Now().Add(30 * time.Second); ; { // the goroutine of raiseStacks may not have begun yet
		n := grows()
		if n <= 20 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of 100 stacks had to grow while the server was running, want hardly any", n)
		}
	}
	s.Shutdown(context.Background())
	if n := grows(); n < 50 {
		t.Errorf("%d of 100 stacks had to grow after Shutdown, want nearly all", n)
	}
}

// grows starts 100 goroutines that use some stack, one after another. It returns how many of them
// got another stack for that. The runtime measures stacks during a garbage collection, and uses the
// result after the next one.
func grows() (n int) {
	for range 2 {
		runtime.GC()
	}
	moved := make(chan bool)
	for range 100 {
		go func() {
			var here byte
			before := uintptr(unsafe.Pointer(&here))
			useSome(3)
			moved <- uintptr(unsafe.Pointer(&here)) != before
		}()
		if <-moved {
			n++
		}
	}
	return n
}

//go:noinline
func useSome(kib int) byte {
	var some [1 << 10]byte
	if kib > 1 {
		some[kib] = useSome(kib - 1)
	}
	return some[kib]
}
