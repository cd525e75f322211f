package loop

import "sync/atomic"

// handlers calls the handler for requests that may wait, each in a goroutine. A goroutine that has
// finished waits for the next request. A new goroutine starts with a small stack, and copying the
// stack each time that it grows takes a seventh of the CPU time of a request that creates a stream.
type handlers struct {
	exchanges chan *exchange // unbuffered: only an idle goroutine can receive
	idle      atomic.Int32
	loops     atomic.Int32 // number of loops that still run
}

// maxIdle limits the number of idle goroutines.
const maxIdle = 64

// serve calls the handler in an idle goroutine if there is one, and in a new one otherwise.
func (h *handlers) serve(x *exchange) {
	select {
	case h.exchanges <- x:
	default:
		go h.run(x)
	}
}

func (h *handlers) run(x *exchange) {
	for open := true; open; {
		x.handle()
		if h.idle.Add(1) > maxIdle {
			h.idle.Add(-1)
			return
		}
		x, open = <-h.exchanges
		h.idle.Add(-1)
	}
}

func (x *exchange) handle() {
	l := x.c.l
	l.guard(x, func() { l.set.options.Handler.ServeHTTP(x, x.request) })
	l.post(message{exchange: x})
}

// leave is called by each loop when it ends. The last loop ends the idle goroutines.
func (h *handlers) leave() {
	if h.loops.Add(-1) == 0 {
		close(h.exchanges)
	}
}
