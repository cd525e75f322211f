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

// holding is a handler that reads and answers requests only when the test closes the channel.
func holding(t *testing.T, response int) (h http.Handler, begun, finish chan struct{}) {
	begun, finish = make(chan struct{}, 10), make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-finish
		io.Copy(io.Discard, r.Body)
		w.Write(make([]byte, response))
	}), begun, finish
}

// If the client enlarges the window of a plain request, net/http learns of it when it serves the request
// after all.
func TestWindowIsPassedOn(t *testing.T) {
	p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	p.refuses = true
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 1000)) })
	p.begin(1, 3)
	p.WriteWindowUpdate(1, 600)
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 300})
	p.WriteData(1, true, []byte("abc"))
	p.pass()
	p.expect("1 status 200")
	for got := 0; got < 900; { // in several parts if net/http begins to respond before it knows the window
		var n int
		if _, err := fmt.Sscanf(p.read(), "1 %d bytes", &n); err != nil {
			t.Fatal(err)
		}
		got += n
	}
	p.WriteWindowUpdate(1, 100)
	p.pass()
	p.expect("1 100 bytes end")
}

// net/http and the loop agree about the smallest window that the server allows.
func TestLeastWindow(t *testing.T) {
	const least = 64 << 10
	p := newPeerOf(t, least)
	h, begun, finish := holding(t, 10)
	p.handler = h
	p.begin(1, 70_000)
	for _, n := range []int{16384, 16384, 16384, 16383} { // all that a client may send without an update
		p.WriteData(1, false, make([]byte, n))
	}
	p.pass()
	<-begun
	p.silent()
	if p.c.receive != 0 {
		t.Errorf("the client may send %d bytes more", p.c.receive)
	}
	close(finish)
	for p.c.receive < 70_000-firstWindow {
		<-p.woken
		p.c.Pull()
	}
	p.WriteData(1, true, make([]byte, 70_000-firstWindow))
	p.pass()
	for got := ""; got != "1 data \""+strings.Repeat("\\x00", 10)+"\" end"; got = p.read() {
	}
}

// A client that may send nothing more gets back what the loop has read, even if it is little.
func TestOwedIsPaid(t *testing.T) {
	const window = 80_000
	p := newPeerOf(t, window)
	h, begun, finish := holding(t, 0)
	defer close(finish)
	p.handler = h
	p.begin(1, 50_000) // more than the loop serves
	for range 5 {
		p.WriteData(1, false, make([]byte, 10_000))
	}
	p.pass()
	<-begun
	for id := uint32(3); id < 100; id += 2 {
		n := int(min(10_000, p.c.receive))
		p.begin(id, n)
		p.WriteData(id, true, make([]byte, n))
		p.pass()
		p.next().Respond(200, nil, nil)
		if p.c.receive == 0 {
			t.Fatalf("after stream %d the client must wait, although %d bytes are owed", id, p.c.owed)
		}
	}
}

// The server acknowledges smaller windows only when it obeys them.
func TestSmallerWindow(t *testing.T) {
	p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 50_000})
	finish := make(chan struct{})
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-finish
		w.Write(make([]byte, 60_000))
	})
	p.acks = true
	p.headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/")
	p.pass()
	p.expect("acknowledged", "1 status 200")
	close(finish)
	for sent := 0; sent < 50_000; { // without passing on what net/http has written
		<-p.woken
		p.c.tunnels[0].mu.Lock()
		p.c.tunnels[0].woken = false
		sent = len(p.c.tunnels[0].out)
		p.c.tunnels[0].mu.Unlock()
	}
	p.Wake()
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	p.pass()
	data := 0
	for f := p.read(); f != "acknowledged"; f = p.read() {
		data++
	}
	if data == 0 {
		t.Error("the settings were acknowledged before the data that net/http had sent")
	}
	p.WriteWindowUpdate(1, 49_000) // the window is now 100 - 50000 + 49000
	p.pass()
	p.silent()
	p.WriteWindowUpdate(1, 1000)
	p.pass()
	p.expect("1 100 bytes")
}

// A second tunnel and the loop agree about the smallest window, too.
func TestLeastWindowOfSecondTunnel(t *testing.T) {
	p := newPeerOf(t, 64<<10)
	p.server.IdleTimeout = time.Millisecond
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	p.begin(1, 30_000)
	p.WriteData(1, false, make([]byte, 15_000))
	p.WriteData(1, true, make([]byte, 15_000))
	p.pass()
	for p.c.tunnels[0].send = 0; len(p.c.tunnels) > 0; p.c.Pull() {
		<-p.woken
	}
	<-p.served
	p.served <- struct{}{}
	p.server.IdleTimeout = 0 // the second tunnel must not end before the request arrives
	h, begun, finish := holding(t, 0)
	p.handler = h
	p.in.Reset()
	p.c.Take()
	p.begin(3, 70_000)
	for left := int(p.c.receive); left > 0; {
		n := min(left, 16_000)
		p.WriteData(3, false, make([]byte, n))
		left -= n
	}
	p.pass()
	<-begun
	close(finish)
	for p.c.receive == 0 && len(p.c.streams) > 0 {
		<-p.woken
		p.c.Pull()
	}
	if len(p.c.streams) == 0 {
		t.Error("the request was reset")
	}
}
