package client

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// slowConn is a connection that writes when it is told to.
type slowConn struct {
	net.Conn
	mu     sync.Mutex
	writes [][]byte
	begun  chan struct{} // a write begins
	goOn   chan error    // and ends with this
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

// While the system is busy with a write, the next ones are put together, and the order stays.
func TestGather(t *testing.T) {
	slow := newSlowConn()
	g := newGathered(slow)
	put := func(s string) {
		t.Helper()
		if n, err := g.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("%q: %d %v", s, n, err)
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
		t.Errorf("written: %s", got)
	}

	put("e")
	<-slow.begun
	broken := errors.New("broken")
	put("f")
	slow.goOn <- broken
	<-g.over
	if _, err := g.Write([]byte("g")); !errors.Is(err, broken) {
		t.Errorf("after a write that failed: %v", err)
	}
	if len(slow.writes) != 3 {
		t.Errorf("%q was written after one that failed", slow.writes[3:])
	}
	g.Close()
}

// What waits is bounded, and closing ends whoever waits for room, and whoever writes.
func TestGatherBounds(t *testing.T) {
	slow := newSlowConn()
	g := newGathered(slow)
	g.Write([]byte("x"))
	<-slow.begun
	if n, err := g.Write(make([]byte, 2*gatherMost)); n != 2*gatherMost || err != nil { // nothing waits yet
		t.Fatalf("%d %v", n, err)
	}
	ended := make(chan error)
	go func() {
		_, err := g.Write([]byte("y"))
		ended <- err
	}()
	g.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) || len(g.waiting) != 2*gatherMost {
		t.Errorf("whoever waited got %v, and %d bytes wait", err, len(g.waiting))
	}
	if _, err := g.Write([]byte("z")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after closing: %v", err)
	}
}

// Over a real connection all of it arrives, in order, whatever the sizes.
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
		t.Errorf("it is not what was written: %v", err)
	}
	g.Close()
}
