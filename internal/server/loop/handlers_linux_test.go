package loop

import (
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// Goroutines that have called the handler wait for the next request. At most maxIdle of them do, and
// they end with the loops.
func TestIdleHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := &handlers{exchanges: make(chan *exchange)}
		h.loops.Add(2)
		set := &Loops{options: Options{
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if <-release; r.Method == "PANIC" {
					panic(http.ErrAbortHandler)
				}
			}),
			Logger: slog.New(slog.DiscardHandler),
		}}
		l := &loop{set: set}
		serve := func(n int, method string) {
			for range n {
				h.serve(&exchange{c: &conn{l: l}, request: &http.Request{Method: method}})
			}
			synctest.Wait()
		}
		running := func() int {
			stacks := make([]byte, 1<<20)
			return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "loop.(*handlers).run(")
		}
		serve(maxIdle+10, "PUT")
		if n := running(); n != maxIdle+10 {
			t.Errorf("%d goroutines handle %d requests", n, maxIdle+10)
		}
		close(release)
		synctest.Wait()
		if n := running(); n != maxIdle {
			t.Errorf("%d goroutines wait for requests, want %d", n, maxIdle)
		}
		for range 5 {
			serve(10, "PANIC")
		}
		if n := running(); n != maxIdle {
			t.Errorf("%d goroutines wait after requests that panicked, want %d", n, maxIdle)
		}
		if n := len(l.inbox); n != maxIdle+60 {
			t.Errorf("the loop got %d responses, want %d", n, maxIdle+60)
		}
		h.leave()
		synctest.Wait()
		if n := running(); n != maxIdle {
			t.Errorf("%d goroutines wait while a loop runs, want %d", n, maxIdle)
		}
		h.leave()
		synctest.Wait()
		if n := running(); n != 0 {
			t.Errorf("%d goroutines wait after the last loop has ended", n)
		}
	})
}
