package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The beginning of a parked response is the same, whether net/http or an event loop sends it.
func TestParkedBegins(t *testing.T) {
	for _, field := range []string{"", "Connection: close\r\n", "Connection: keep-alive\r\n"} {
		var got []http.Response
		bothWays(t, func(t *testing.T, serve func(...*script) *Server) {
			s := newScript()
			server := serve(s)
			defer server.Shutdown(context.Background())
			c, in := dial(t, server)
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"+field+"\r\n")
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.say("end")
			if body, err := io.ReadAll(resp.Body); string(body) != "hello\nended\n" || err != nil {
				t.Errorf("got %q, %v", body, err)
			}
			if resp.Header.Get("Date") == "" {
				t.Error("the response has no date")
			}
			resp.Header.Del("Date")
			resp.Body = nil
			got = append(got, *resp)
		})
		if len(got) == 2 && !reflect.DeepEqual(got[0], got[1]) {
			t.Errorf("%q: net/http sent %+v, and the event loop %+v", field, got[0], got[1])
		}
	}
}

// parkLong subscribes to a response whose beginning is longer than what the send buffer holds.
func parkLong(t *testing.T, s *script) (server *Server, begun string, c net.Conn, in *bufio.Reader) {
	t.Helper()
	p := newParker(s)
	p.begun = strings.Repeat("x", 64<<20) + "\n"
	server = serveParker(t, earlyParker{p, t, func() {}})
	c, in = dial(t, server)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
	return server, p.begun, c, in
}

// A client that reads slowly gets all of a long beginning, and then what follows it.
func TestParkedBeginsSlowly(t *testing.T) {
	s := newScript()
	server, begun, c, in := parkLong(t, s)
	defer server.Shutdown(context.Background())
	receive(t, s.entered, "the response is not parked")
	s.say("more", "end")
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{c, in, bufio.NewReader(resp.Body)}
	l.wants(t, begun[:len(begun)-1], "more", "ended")
}

// A client that reads nothing of a long beginning is cut off.
func TestParkedBeginsInVain(t *testing.T) {
	s := newScript()
	s.accept = 50 * time.Millisecond
	server, _, _, _ := parkLong(t, s)
	defer server.Shutdown(context.Background())
	if err := receive(t, s.left, "Left was not called"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Left was called with %v, want os.ErrDeadlineExceeded", err)
	}
	waitOpen(t, server, 0)
}

// A GET of a subscriber can follow another request at once, and be followed by one.
func TestParkedBetweenRequests(t *testing.T) {
	s := newScript()
	server := serveParker(t, earlyParker{newParker(s), t, func() {}})
	defer server.Shutdown(context.Background())
	c, in := dial(t, server)
	io.WriteString(c, post11("/", "", "1")+"GET / HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"+post11("/", "", "2"))
	expect(t, in, "x")
	s.say("end")
	expect(t, in, "hello\nended\n")
	expect(t, in, "x")
}

// announcing is an earlyParker that announces requests when it gets them from an event loop.
type announcing struct {
	earlyParker
	taken chan struct{}
}

func (a announcing) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	a.taken <- struct{}{}
	return a.earlyParker.ServeLater(w, r)
}

// If a response cannot be sent any more when its handler has parked it, it is told so.
func TestParkedTooLate(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*testing.T, net.Conn, *Server) // called before the handler finishes
		finish func()
	}{
		"client has left": {func(_ *testing.T, c net.Conn, _ *Server) { c.Close() }, func() {}},
		"handler panics":  {func(*testing.T, net.Conn, *Server) {}, func() { panic("planted") }},
		"server has cut off the connection": {func(t *testing.T, _ net.Conn, s *Server) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown returned %v, want the error of the context", err)
			}
		}, func() {}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			p := newParker()
			p.scripts = make(chan *script)
			taken := make(chan struct{}, 10)
			server := serveParker(t, announcing{earlyParker{p, t, c.finish}, taken})
			conn, in := dial(t, server)
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"+post11("/", "", "2"))
			<-taken
			c.before(t, conn, server)
			p.scripts <- s
			if err := receive(t, s.left, "Left was not called"); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Left was called with %v, want net.ErrClosed", err)
			}
			if rest, err := io.ReadAll(in); name == "handler panics" && (len(rest) > 0 || err != nil) {
				t.Errorf("got %q, %v; want a closed connection", rest, err)
			}
			waitOpen(t, server, 0)
			server.Shutdown(context.Background())
		})
	}
}

// unaskedParker is a parker to which event loops must not offer a GET.
type unaskedParker struct {
	*parker
	t *testing.T
}

func (p unaskedParker) ServeLater(_ http.ResponseWriter, r *http.Request) (taken, done bool) {
	if r.Method == http.MethodGet {
		p.t.Error("an event loop has offered a GET")
	}
	return false, false
}

// Over TLS nothing is parked, so net/http serves subscribers there.
func TestNothingParkedOverTLS(t *testing.T) {
	if netHTTPOnly {
		t.Skip("needs event loops")
	}
	p := newParker(newScript())
	server := listen(t)
	server.Serve(unaskedParker{p, t}, secured())
	defer server.Shutdown(context.Background())
	req, _ := http.NewRequest("GET", "https://"+server.HTTPS(), nil)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := wires["HTTP1TLS"].client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); string(body) != "hello\nnot parked\n" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
}
