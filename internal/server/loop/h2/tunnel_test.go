//lint:file-ignore SA1019 net/http has no function that serves a single connection

package h2

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// Requests that the loop does not serve pass through a tunnel, and their responses come back.
func TestTunnel(t *testing.T) {
	p := newPeer(t)
	p.refuses = true
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-T")
		fmt.Fprintf(w, "%s %d %q", r.Method, len(r.Header), body)
		w.(http.Flusher).Flush()
		w.Header().Set("X-T", "u")
	})
	for id := uint32(1); id < 9; id += 2 {
		p.post(id, "abc")
		p.expect(fmt.Sprintf("%d status 200", id), fmt.Sprintf("%d data \"POST 1 \\\"abc\\\"\"", id), fmt.Sprintf("%d status  end", id))
	}
	p.headers(9, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/", "x-a", "b")
	p.pass()
	p.expect("9 status 200", `9 data "GET 1 \"\""`, "9 status  end")
	if p.tunnels != 1 || !p.c.IsIdle() {
		t.Errorf("%d tunnels, idle %v", p.tunnels, p.c.IsIdle())
	}
}

// The responses of net/http and of the loop share the window of the connection, even if net/http does
// not know what the loop has used.
func TestSharedWindow(t *testing.T) {
	p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 60_000)) })
	p.post(1, "")
	p.respond(p.next(), strings.Repeat("x", 60_000))
	p.headers(3, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/")
	p.pass()
	got := map[uint32]int{}
	total, ended := 0, 0
	for ended < 2 {
		var id uint32
		var n int
		f := p.read()
		if _, err := fmt.Sscanf(f, "%d %d bytes", &id, &n); err == nil {
			got[id] += n
			total += n
		}
		if strings.HasSuffix(f, "end") {
			ended++
		}
		if total == firstWindow {
			p.silent()
			if ended != 1 || !p.c.IsBlocked() {
				t.Fatalf("%d responses have ended, blocked %v", ended, p.c.IsBlocked())
			}
			p.WriteWindowUpdate(0, 100_000)
			p.pass()
		}
	}
	if got[1] != 60_000 || got[3] != 60_000 {
		t.Errorf("got %v bytes", got)
	}
	if p.c.send != firstWindow+100_000-120_000 {
		t.Errorf("the window is %d", p.c.send)
	}
}

// When net/http closes an idle tunnel, the next request gets a new one.
func TestTunnelEnds(t *testing.T) {
	p := newPeer(t)
	p.refuses = true
	p.server.IdleTimeout = time.Millisecond
	for id := uint32(1); id < 5; id += 2 {
		p.post(id, "abc")
		for got := ""; !strings.HasSuffix(got, "end") && !strings.HasSuffix(got, "REFUSED_STREAM"); got = p.read() {
			// on a busy machine, the tunnel may end before net/http has read the request
		}
		for len(p.c.tunnels) > 0 {
			<-p.woken
			p.c.Pull()
		}
		if p.c.leaving {
			t.Skip("the tunnel became idle while the request arrived, so net/http ends the connection")
		}
	}
	p.in.Write(p.c.Take())
	if p.tunnels != 2 || p.c.failed || p.c.receive+p.c.owed != 100_000 {
		t.Errorf("%d tunnels, failed %v, window %d", p.tunnels, p.c.failed, p.c.receive+p.c.owed)
	}
}

// A client that does not answer the pings of net/http loses its connection.
func TestLostPing(t *testing.T) {
	p := newPeer(t)
	p.server.ReadIdleTimeout, p.server.PingTimeout = time.Millisecond, time.Second
	p.refuses = true
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	p.post(1, "abc")
	p.expect("ping false")
	for !p.c.IsOver() {
		<-p.woken
		p.c.Pull()
	}
}

// A long response does not fill the memory of a tunnel while the client accepts nothing.
func TestTunnelBlocks(t *testing.T) {
	p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: mostWindow})
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, io.LimitReader(zeros{}, 5<<20)) })
	p.headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/")
	p.WriteWindowUpdate(0, mostWindow-firstWindow)
	p.pass()
	total := 0
	for f := ""; !strings.HasSuffix(f, "end"); {
		if n := p.in.Len(); n > 4*fullBytes {
			t.Fatalf("%d bytes at once", n)
		}
		f = p.read()
		var n int
		fmt.Sscanf(f, "1 %d bytes", &n)
		total += n
	}
	if total != 5<<20 {
		t.Errorf("got %d bytes", total)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A response that is complete, but waits for a window, is sent even if net/http resets the stream because
// the client goes on sending the request.
func TestEarlyResponseWaits(t *testing.T) {
	p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "no") })
	p.post(1, "")
	p.next().Respond(200, nil, make([]byte, firstWindow))
	p.c.Take()
	p.in.Reset()
	p.headers(3, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", "te", "trailers")
	p.pass()
	s := p.c.streams[3]
	for len(s.held) < 2 { // the response and a reset
		<-p.woken
		p.c.Pull()
	}
	p.WriteData(3, false, make([]byte, 10))
	p.pass()
	<-p.woken
	p.c.Pull() // one more reset
	if s.dropped || len(s.held) != 2 {
		t.Fatalf("dropped %v, %d frames wait", s.dropped, len(s.held))
	}
	p.WriteWindowUpdate(0, 1000)
	p.pass()
	for got := p.read(); got != `3 data "no" end`; got = p.read() {
		if strings.Contains(got, "reset") {
			t.Fatal(got)
		}
	}
}
