package client

import (
	"context"
	"net"
	"runtime"
	"sync"
)

// gatherMost is the number of buffered bytes above which Write waits.
const gatherMost = 256 << 10

// gathering wraps a dial function so that the connections combine small writes.
func gathering(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newGathered(c), nil
	}
}

// gathered is a connection that combines writes. net/http writes every small HTTP/2 request in two
// parts, its header and its body, and each write costs a system call on this side and a wake-up on
// the other. With gathered, Write only appends to a buffer. While a goroutine writes one buffer to
// the connection, further writes fill the next buffer. The order of the bytes stays the same.
//
// If writing to the connection fails, the next call of Write returns the error. Read fails too,
// because the connection is broken.
type gathered struct {
	net.Conn
	mu      sync.Mutex
	changed sync.Cond
	waiting []byte        // bytes that are not written yet
	err     error         // why nothing can be written any more
	over    chan struct{} // closed when the method run has returned
}

func newGathered(c net.Conn) *gathered {
	g := &gathered{Conn: c, over: make(chan struct{})}
	g.changed.L = &g.mu
	go g.run()
	return g
}

// Write buffers b to be written. It waits while the buffer is full.
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

// Close closes the connection without writing what is still buffered.
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

// run writes the buffer to the connection, all of it at once, until Close or an error.
func (g *gathered) run() {
	defer close(g.over)
	var b []byte
	for {
		g.mu.Lock()
		for g.err == nil && len(g.waiting) == 0 {
			g.changed.Wait()
		}
		g.mu.Unlock()
		runtime.Gosched() // let goroutines that are about to write fill the buffer first
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
