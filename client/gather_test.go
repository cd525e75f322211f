package client

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// slowConn is a connection on which the test decides when each write ends.
type slowConn struct {
	net.Conn
	mu     sync.Mutex
	writes [][]byte
	begun  chan struct{} // receives a value when a write begins
	goOn   chan error    // ends the write with this result
	closed chan struct{}
}

func newSlowConn() *slowConn {
	return &slowConn{begun: make(chan struct{}, 100), goOn: make(chan error), closed: make(chan struct{})}
}

func (c *slowConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.writes = append(c.writes, bytes.Clone(b))
	c.mu.Unlock()
	c.begun <- struct{}{}
	select {
	case err := <-c.goOn:
		return len(b), err
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *slowConn) Close() error {
	close(c.closed)
	return nil
}

// While one write is in progress, further writes are combined, in order.
func TestGather(t *testing.T) {
	slow := newSlowConn()
	g := newGathered(slow)
	put := func(s string) {
		t.Helper()
		if n, err := g.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", s, n, err)
		}
	}
	put("a")
	<-slow.begun
	put("b")
	put("c")
	put("d")
	slow.goOn <- nil
	<-slow.begun
	slow.goOn <- nil
	if got := string(bytes.Join(slow.writes, []byte("|"))); got != "a|bcd" {
		t.Errorf("writes: %s, want a|bcd", got)
	}

	put("e")
	<-slow.begun
	broken := errors.New("broken")
	put("f")
	slow.goOn <- broken
	<-g.over
	if _, err := g.Write([]byte("g")); !errors.Is(err, broken) {
		t.Errorf("Write after a failed write: %v, want %v", err, broken)
	}
	if len(slow.writes) != 3 {
		t.Errorf("%q was written after a failed write", slow.writes[3:])
	}
	g.Close()
}

// The buffer is bounded. Close ends a Write that waits for room, and the write in progress.
func TestGatherBounds(t *testing.T) {
	slow := newSlowConn()
	g := newGathered(slow)
	g.Write([]byte("x"))
	<-slow.begun
	if n, err := g.Write(make([]byte, 2*gatherMost)); n != 2*gatherMost || err != nil { // an empty buffer accepts more than gatherMost bytes
		t.Fatalf("%d %v", n, err)
	}
	ended := make(chan error)
	go func() {
		_, err := g.Write([]byte("y"))
		ended <- err
	}()
	g.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) || len(g.waiting) != 2*gatherMost {
		t.Errorf("the waiting Write returned %v, and %d bytes are buffered", err, len(g.waiting))
	}
	if _, err := g.Write([]byte("z")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write after Close: %v, want %v", err, net.ErrClosed)
	}
}

// Writes of many sizes arrive complete and in order.
func TestGatherPipe(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	g := newGathered(near)
	var want []byte
	go func() {
		for i := range 2000 {
			g.Write(bytes.Repeat([]byte{byte(i)}, 1+i%700))
		}
	}()
	for i := range 2000 {
		want = append(want, bytes.Repeat([]byte{byte(i)}, 1+i%700)...)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the bytes read differ from those written: %v", err)
	}
	g.Close()
}
