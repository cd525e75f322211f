package h2

import (
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// The server acknowledges all settings, also if several arrive while net/http begins to serve a tunnel.
func TestSettingsAreAcknowledged(t *testing.T) {
	for range 20 {
		p := newPeer(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		p.acks = true
		p.headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/")
		if n := p.c.Receive(p.out.Bytes()); n != p.out.Len() {
			t.Fatalf("%d of %d bytes were used", n, p.out.Len())
		}
		p.out.Reset()
		for range 3 {
			p.WriteSettings()
			p.pass()
		}
		for acks := 0; acks < 4; {
			if p.read() == "acknowledged" {
				acks++
			}
		}
		if p.c.unacked > 0 {
			t.Errorf("%d settings are not acknowledged", p.c.unacked)
		}
	}
}

// A client cannot make the server remember any number of acknowledgements, or of frames that it has
// passed on.
func TestFloodsOfTunnel(t *testing.T) {
	for kind, f := range map[string]frame{
		"settings": {kindSettings, 0, 0, nil},
		"pings":    {kindPing, flagAck, 0, make([]byte, 8)},
	} {
		p := newPeer(t)
		finish := make(chan struct{})
		p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-finish })
		p.headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/")
		p.pass()
		var b []byte
		for len(b) < 68<<10 {
			b = appendFrame(b, f)
		}
		for range 60 { // 4 MB
			for p.c.IsFull() {
				<-p.woken
				p.c.Pull()
				p.c.Take()
			}
			p.c.Receive(b)
			p.c.Take()
			tunnel := p.c.tunnels[0]
			tunnel.mu.Lock()
			if n := cap(tunnel.in); n > 2<<20 {
				t.Fatalf("%s: %d bytes for net/http", kind, n)
			}
			tunnel.mu.Unlock()
			if n := p.c.unacked; n > 30_000 {
				t.Fatalf("%s: %d acknowledgements", kind, n)
			}
		}
		close(finish)
	}
}
