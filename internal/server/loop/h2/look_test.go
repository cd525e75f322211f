package h2

import (
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

func TestLook(t *testing.T) {
	frames := func(write func(p *peer)) []byte {
		p := newPeer(t)
		write(p)
		return append([]byte(Preface), p.out.Bytes()...)
	}
	get := frames(func(p *peer) {
		p.headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/")
	})
	post := frames(func(p *peer) { p.begin(1, 3) })
	for name, c := range map[string]struct {
		raw  []byte
		want Verdict
	}{
		"nothing":               {nil, Undecided},
		"a part of the preface": {post[:10], Undecided},
		"HTTP/1.1":              {[]byte("POST / HTTP/1.1\r\n"), Foreign},
		"no request":            {frames(func(p *peer) { p.WritePing(false, [8]byte{}) }), Undecided},
		"a part of a request":   {post[:len(post)-1], Undecided},
		"a publish":             {post, Plain},
		"a GET":                 {get, Foreign},
		"no settings":           {slices.Concat([]byte(Preface), post[len(Preface)+frameHead:]), Foreign},
		"a long frame":          {slices.Concat([]byte(Preface), appendHead(nil, MaxFrame+1, kindSettings, 0, 0)), Foreign},
		"unknown length": {frames(func(p *peer) {
			p.headers(1, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/")
		}), Foreign},
		"continued fields": {frames(func(p *peer) { p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}) }), Foreign},
		"wrong compression": {frames(func(p *peer) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff}, EndHeaders: true})
		}), Foreign},
	} {
		if got := Look(c.raw); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
