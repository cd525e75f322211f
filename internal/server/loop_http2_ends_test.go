package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// overHTTP2 runs a test over HTTP/2, in cleartext and over TLS.
func overHTTP2(t *testing.T, f func(t *testing.T, w wire)) {
	for _, name := range []string{"H2C", "HTTP2"} {
		t.Run(name, func(t *testing.T) { f(t, wires[name]) })
	}
}

// relay is a handler that sends a line to all subscribers for each request that it gets.
type relay struct {
	t      *testing.T
	lines  []chan string // of each subscriber
	looped atomic.Int64  // number of requests that a loop has served
}

func (h *relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		control := http.NewResponseController(w)
		control.Flush()
		for line := range h.lines[int(r.URL.Path[1]-'0')] {
			fmt.Fprintln(w, line)
			control.Flush()
		}
		return
	}
	if inLoop(w) {
		h.looped.Add(1)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		h.t.Error(err)
	}
	for _, c := range h.lines {
		c <- fmt.Sprintf("%s %d", r.URL.Path, len(body))
	}
	w.Write(body)
}

// echoed posts bodies of different sizes and compares the responses.
func echoed(t *testing.T, c *http.Client, url, letter string, requests int) {
	for i := range requests {
		body := strings.Repeat(letter, i*997)
		resp, err := c.Post(url+[]string{"/a", "/now", "/declined"}[i%3], "text/plain", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != body {
			t.Errorf("got %d bytes (%v), want %d", len(got), err, len(body))
		}
	}
}

// Publishes and subscriptions share a connection: a loop serves the former and net/http the latter.
func TestHTTP2Mixed(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		const requests, subscribers, publishers = 40, 3, 8
		h := &relay{t: t}
		for range subscribers {
			h.lines = append(h.lines, make(chan string, 1+requests*publishers))
		}
		s := listen(t)
		s.Serve(keen{h.ServeHTTP}, secured())
		defer s.Shutdown(context.Background())
		c := w.client(t)
		echoed(t, c, w.url(s), "x", 1) // so that a loop serves the connection
		var reading, writing sync.WaitGroup
		for i := range h.lines {
			resp, err := c.Get(fmt.Sprintf("%s/%d", w.url(s), i))
			if err != nil {
				t.Fatal(err)
			}
			reading.Go(func() {
				defer resp.Body.Close()
				n := 0
				for in := bufio.NewScanner(resp.Body); in.Scan(); n++ {
				}
				if n != 1+requests*publishers {
					t.Errorf("a subscriber got %d lines, want %d", n, 1+requests*publishers)
				}
			})
		}
		for p := range publishers {
			writing.Go(func() { echoed(t, c, w.url(s), string(rune('a'+p)), requests) })
		}
		writing.Wait()
		for _, c := range h.lines {
			close(c)
		}
		reading.Wait()
		if n := h.looped.Load(); n < requests*publishers/2 && !netHTTPOnly {
			t.Errorf("the loops served %d requests, want at least half of %d", n, requests*publishers)
		}
	})
}

// slow is a handler that takes requests over from event loops, and answers when the test says so.
type slow struct {
	http.Handler
	begun, finish chan struct{}
}

func (h slow) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	go func() {
		h.ServeHTTP(w, r)
		w.(interface{ Ready(interface{ Finish() }) }).Ready(finisher(func() {}))
	}()
	return true, false
}

func newSlow() slow {
	h := slow{begun: make(chan struct{}, 10), finish: make(chan struct{})}
	h.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.begun <- struct{}{}
		<-h.finish
		w.WriteHeader(http.StatusAccepted)
	})
	return h
}

// Shutdown tells the client not to send more requests, and answers those in flight.
func TestHTTP2ShutdownWaits(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		h := newSlow()
		s := listen(t)
		s.Serve(h, secured())
		k := dial2(t, s, w.secure)
		defer k.Close()
		id := k.post("/", "abc")
		k.send()
		<-h.begun
		down := make(chan error)
		go func() { down <- s.Shutdown(context.Background()) }()
		for {
			f, err := k.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if g, ok := f.(*http2.GoAwayFrame); ok {
				if g.ErrCode != http2.ErrCodeNo || g.LastStreamID != id {
					t.Errorf("got %v", g)
				}
				break
			}
		}
		close(h.finish)
		if o := k.one(id); !strings.HasPrefix(o.header, ":status: 202") {
			t.Errorf("the request in flight got %+v", o)
		}
		if _, err := k.ReadFrame(); !errors.Is(err, io.EOF) {
			t.Errorf("the connection ended with %v, want EOF", err)
		}
		if err := <-down; err != nil {
			t.Error(err)
		}
	})
}

// When the context ends, Shutdown cuts off the requests, wherever they are.
func TestHTTP2ShutdownCuts(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		for _, path := range []string{"/loop", "/tunnel", "/handed-over"} {
			h := newSlow()
			s := listen(t)
			s.Serve(h, secured())
			k := dial2(t, s, w.secure)
			if path == "/handed-over" {
				k.headers(true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", path)
			} else {
				fields := []string{"x-a", "b"}
				if path == "/tunnel" {
					k.post("/", "")
					fields[0] = "te"
					fields[1] = "trailers"
				}
				k.post(path, "abc", fields...)
			}
			k.send()
			<-h.begun
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Shutdown returned %v, want the error of the context", path, err)
			}
			for err := error(nil); err == nil; {
				var f http2.Frame
				if f, err = k.ReadFrame(); err == nil && f.Header().Type == http2.FrameHeaders {
					t.Errorf("%s: the request was answered: %v", path, f)
				}
			}
			close(h.finish)
			k.Close()
		}
	})
}

// A handler sees a request whose body arrives slowly before the body is complete, and gets all of it.
func TestHTTP2SlowBody(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		begun := make(chan struct{}, 1)
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			begun <- struct{}{}
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %v", body, err)
		})
		k := dial2(t, s, w.secure)
		defer k.Close()
		k.one(k.post("/", ""))
		<-begun
		id := k.headers(false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", "content-length", "6")
		k.WriteData(id, false, []byte("abc"))
		k.send()
		<-begun
		k.WriteData(id, true, []byte("def"))
		if o := k.one(id); o.body != "abcdef <nil>" {
			t.Errorf("got %+v", o)
		}
	})
}

// A client that waits for the settings of the server before it sends a request gets them.
func TestHTTP2SettingsFirst(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		s := serve(t, mirror)
		k := dial2(t, s, w.secure)
		defer k.Close()
		k.send()
		f, err := k.ReadFrame()
		settings, ok := f.(*http2.SettingsFrame)
		if err != nil || !ok {
			t.Fatalf("got %v (%v), want settings", f, err)
		}
		if n, _ := settings.Value(http2.SettingMaxConcurrentStreams); n != maxStreams {
			t.Errorf("the limit of streams is %d, want %d", n, maxStreams)
		}
		if o := k.one(k.post("/", "abc")); !strings.HasPrefix(o.body, "POST / ") {
			t.Errorf("got %+v", o)
		}
	})
}

// A client that has agreed to speak HTTP/2 over TLS must not speak HTTP/1.1.
func TestALPNIsBinding(t *testing.T) {
	s := serve(t, mirror)
	c, err := tls.Dial("tcp", s.HTTPS(), &tls.Config{RootCAs: trust, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, post11("/", "", "abc"))
	if got, err := io.ReadAll(c); strings.Contains(string(got), "200") || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %q, %v", got, err)
	}
}

// A client that hangs up while a loop answers its requests leaves nothing behind, and an idle
// connection makes room for another.
func TestHTTP2HangUp(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		h := newSlow()
		s, err := Listen(Options{
			HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Logger: quiet, NetHTTPOnly: netHTTPOnly, Connections: func() int { return 100 },
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Serve(h, secured())
		defer s.Shutdown(context.Background())
		for range 5 {
			k := dial2(t, s, w.secure)
			k.post("/", "abc")
			k.post("/", "def")
			k.send()
			<-h.begun
			<-h.begun
			k.Close()
		}
		for s.Connections().Open > 0 {
			runtime.Gosched()
		}
		close(h.finish)
	})
}

// A handler that panics in a loop ends its request, and no other.
func TestHTTP2Panic(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		s := listen(t)
		s.Serve(keen{func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/now" {
				panic(http.ErrAbortHandler)
			}
		}}, secured())
		defer s.Shutdown(context.Background())
		k := dial2(t, s, w.secure)
		defer k.Close()
		for range 3 {
			if o := k.one(k.post("/now", "abc")); o.reset != "INTERNAL_ERROR" {
				t.Errorf("got %+v, want a reset", o)
			}
			if o := k.one(k.post("/later", "abc")); !strings.HasPrefix(o.header, ":status: 200") {
				t.Errorf("got %+v, want 200", o)
			}
		}
	})
}

// A response that says "Connection: close" is the last of its connection.
func TestHTTP2Close(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		s := listen(t)
		s.Serve(keen{func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Connection", "close") }}, secured())
		defer s.Shutdown(context.Background())
		k := dial2(t, s, w.secure)
		defer k.Close()
		if o := k.one(k.post("/", "abc")); !strings.HasPrefix(o.header, ":status: 200") || strings.Contains(o.header, "close") {
			t.Errorf("got %+v, want 200 without a Connection field", o)
		}
		for err := error(nil); err == nil; {
			if _, err = k.ReadFrame(); err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("the connection ended with %v, want EOF", err)
			}
		}
	})
}

// The limit of header fields applies to requests that a loop could serve, too.
func TestHTTP2HeaderTooLarge(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		s := listen(t)
		s.Serve(keen{mirror}, secured())
		defer s.Shutdown(context.Background())
		k := dial2(t, s, w.secure)
		defer k.Close()
		k.one(k.post("/", "abc"))
		for _, long := range []string{strings.Repeat("a", maxHeaderBytes), strings.Repeat("/", 3*maxHeaderBytes/2)} {
			fields := []string{"x-long", long}
			path := "/"
			if long[0] == '/' {
				fields, path = nil, "/a"+long
			}
			if o := k.one(k.post(path, "abc", fields...)); !strings.Contains(o.header, ":status: 431") {
				t.Errorf("got %.200s, want 431", o.header)
			}
		}
		if o := k.one(k.post("/", "abc")); !strings.Contains(o.header, ":status: 200") {
			t.Errorf("got %s, want 200", o.header)
		}
	})
}

// A server reads requests from a client even if the client accepts no data.
func TestHTTP2ReadsWhileBlocked(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		called := make(chan struct{}, 100)
		s := listen(t)
		s.Serve(keen{func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				called <- struct{}{}
				return
			}
			for b := make([]byte, 32<<10); ; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		}}, secured())
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		defer s.Shutdown(ctx)
		k := dial2(t, s, w.secure, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		defer k.Close()
		k.one(k.post("/now", "abc"))
		<-called
		k.WriteWindowUpdate(0, 1<<31-1-65535)
		k.headers(true, ":method", "GET", ":scheme", k.scheme, ":authority", "a", ":path", "/")
		for range 200 {
			k.post("/now", "abc")
			k.send()
			<-called
		}
	})
}

// A client that goes on sending when a connection is over gets all responses.
func TestHTTP2SendsAfterEnd(t *testing.T) {
	overHTTP2(t, func(t *testing.T, w wire) {
		s := listen(t)
		s.Serve(keen{func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			w.Write(make([]byte, 20_000))
		}}, secured())
		defer s.Shutdown(context.Background())
		k := dial2(t, s, w.secure)
		defer k.Close()
		id := k.post("/now", "abc")
		for range 3 {
			k.send()
			runtime.Gosched()
			k.WritePing(false, [8]byte{})
		}
		k.out.Reset()
		if o := k.one(id); len(o.body) != 20_000 {
			t.Errorf("got %d bytes", len(o.body))
		}
	})
}
