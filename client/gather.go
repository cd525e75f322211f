package client

import (
	"context"
	"net"
	"runtime"
	"sync"
)

// gatherMost bounds what waits to be written; beyond it, writing waits.
const gatherMost = 256 << 10

// gathering dials connections that gather what is written to them.
func gathering(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newGathered(c), nil
	}
}

// gathered is a connection whose writes go to the system together. HTTP/2 makes two of every small request, one for its head and
// one for its body, and each costs a system call here and a wake-up over there: many more than the requests themselves need. So
// a write only adds to what is waiting, and while the system is busy with some of it, the next is put together. The order stays.
//
// A write that cannot be done is reported by the next one, and by reading.
type gathered struct {
	net.Conn
	mu      sync.Mutex
	changed sync.Cond
	waiting []byte
	err     error // why nothing can be written any more
	over    chan struct{}
}

func newGathered(c net.Conn) *gathered {
	g := &gathered{Conn: c, over: make(chan struct{})}
	g.changed.L = &g.mu
	go g.run()
	return g
}

// Write takes b to be written.
func (g *gathered) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.err == nil && len(g.waiting) > 0 && len(g.waiting)+len(b) > gatherMost {
		g.changed.Wait()
	}
	if g.err != nil {
		return 0, g.err
	}
	g.waiting = append(g.waiting, b...)
	g.changed.Broadcast()
	return len(b), nil
}

// Close ends the connection; what is still waiting is not written.
func (g *gathered) Close() error {
	g.fail(net.ErrClosed)
	err := g.Conn.Close()
	<-g.over
	return err
}

func (g *gathered) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
	g.changed.Broadcast()
}

// run writes what is waiting, all of it at once.
func (g *gathered) run() {
	defer close(g.over)
	var b []byte
	for {
		g.mu.Lock()
		for g.err == nil && len(g.waiting) == 0 {
			g.changed.Wait()
		}
		g.mu.Unlock()
		runtime.Gosched() // whoever is about to write more does so first
		g.mu.Lock()
		if g.err != nil {
			g.mu.Unlock()
			return
		}
		b, g.waiting = g.waiting, b[:0]
		g.changed.Broadcast()
		g.mu.Unlock()
		if _, err := g.Conn.Write(b); err != nil {
			g.fail(err)
		}
	}
}
