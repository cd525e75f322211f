package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
)

// busyLoop starts a request whose handler waits until the channel finish is closed. It also opens
// a second connection that has completed a request and is idle. The channel answered receives the
// responses of the first connection, and the channel idle receives nil when the server closes the
// second.
func busyLoop(t *testing.T) (s *Server, finish chan struct{}, answered, idle chan []reply) {
	t.Helper()
	started := make(chan struct{})
	finish = make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(started)
			<-finish
		}
	})
	s = listen(t)
	s.Serve(h, secured())
	answered, idle = make(chan []reply, 1), make(chan []reply, 1)
	c, err := net.Dial("tcp", s.HTTP())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	in := bufio.NewReader(c)
	io.WriteString(c, post11("/", "", ""))
	if _, err := http.ReadResponse(in, nil); err != nil {
		t.Fatal(err)
	}
	go func() {
		in.ReadByte() // returns when the server closes the connection
		idle <- nil
	}()
	go func() { answered <- ask(t, s.HTTP(), post11("/wait", "", "")) }()
	<-started
	return s, finish, answered, idle
}

// Shutdown waits for the requests in a loop. It closes connections without a request.
func TestLoopShutdownWaits(t *testing.T) {
	s, finish, answered, idle := busyLoop(t)
	down := make(chan error)
	go func() { down <- s.Shutdown(context.Background()) }()
	<-idle
	select {
	case err := <-down:
		t.Fatalf("Shutdown did not wait: %v", err)
	default:
	}
	close(finish)
	if got := <-answered; len(got) != 1 || got[0].status != http.StatusOK {
		t.Errorf("the request in flight got %v, want 200", got)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// Shutdown closes idle connections of the loops at once, even if a request in net/http does
// not end.
func TestLoopShutdownBeside(t *testing.T) {
	hanging, end := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			close(hanging)
			<-end
		}
	})
	s := listen(t)
	s.Serve(h, secured())
	var c net.Conn
	for _, first := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", ""} {
		var err error
		if c, err = net.Dial("tcp", s.HTTP()); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, first)
	}
	<-hanging
	in := bufio.NewReader(c)
	io.WriteString(c, post11("/", "", "x"))
	if _, err := http.ReadResponse(in, nil); err != nil {
		t.Fatal(err)
	}
	down := make(chan error)
	go func() { down <- s.Shutdown(context.Background()) }()
	if _, err := in.ReadByte(); err != io.EOF { // the connection ends although the GET does not
		t.Errorf("the idle connection ended with %v, want EOF", err)
	}
	close(end)
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// If no request is in flight, Shutdown succeeds even if its context has already ended.
func TestShutdownWhenIdle(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := listen(t)
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// When the context ends, Shutdown cuts off the requests in the loops.
func TestLoopShutdownCuts(t *testing.T) {
	s, finish, answered, idle := busyLoop(t)
	defer close(finish)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown returned %v, want the error of the context", err)
	}
	<-idle
	if got := <-answered; len(got) != 0 {
		t.Errorf("the request was answered: %v", got)
	}
}
