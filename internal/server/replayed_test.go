package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

// pieces is a connection whose data arrives in the given pieces. It counts the reads.
type pieces struct {
	net.Conn
	list  [][]byte
	reads int
}

func (p *pieces) Read(b []byte) (int, error) {
	p.reads++
	if len(p.list) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(b, p.list[0])
	if p.list[0] = p.list[0][n:]; len(p.list[0]) == 0 {
		p.list = p.list[1:]
	}
	return n, nil
}

// The test reads HTTP/2 frames as net/http does: nine bytes, then the rest of the frame. For many
// frames that arrive together, this causes only two reads from the network. The connection uses no
// buffer while it waits for a frame header. No data is lost, however the network splits it.
func TestReadAhead(t *testing.T) {
	frame := func(n int) []byte { return append([]byte("123456789"), bytes.Repeat([]byte{byte(n)}, n)...) }
	sizes := []int{40, 0, 100, 9, 1, 3000, 12, 700}
	var all []byte
	for _, n := range sizes {
		all = append(all, frame(n)...)
	}
	read := func(c *replayed) {
		t.Helper()
		for _, n := range sizes {
			got := make([]byte, frameHeader+n)
			if _, err := io.ReadFull(c, got[:frameHeader]); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, got[frameHeader:]); err != nil || !bytes.Equal(got, frame(n)) {
				t.Fatalf("frame of %d bytes: %v", n, err)
			}
		}
	}
	together := &pieces{list: [][]byte{bytes.Clone(all)}}
	c := &replayed{Conn: together, frames: true}
	read(c)
	if together.reads != 2 {
		t.Errorf("frames that arrived together took %d reads, want 2", together.reads)
	}
	if c.ahead != nil || c.raw != nil {
		t.Error("the connection kept its buffer after everything was read")
	}
	for piece := 1; piece < 40; piece++ {
		p := &pieces{}
		for rest := bytes.Clone(all[20:]); len(rest) > 0; {
			n := min(piece, len(rest))
			p.list, rest = append(p.list, rest[:n]), rest[n:]
		}
		c := &replayed{Conn: p, raw: bytes.Clone(all[:20]), frames: true}
		read(c)
		if n, err := c.Read(make([]byte, 100)); n != 0 || !errors.Is(err, io.ErrUnexpectedEOF) || c.ahead != nil {
			t.Errorf("a read at the end of the data returned %d, %v; want 0 and io.ErrUnexpectedEOF, and no buffer in use", n, err)
		}
	}
	// A read that is larger than the pooled buffer goes directly into the buffer of the caller.
	large := &pieces{list: [][]byte{make([]byte, 1<<20)}}
	c = &replayed{Conn: large, frames: true}
	if n, err := c.Read(make([]byte, 64<<10)); n != 64<<10 || err != nil || c.ahead != nil {
		t.Errorf("a large read returned %d, %v; want 65536, without the pooled buffer", n, err)
	}
}

// Only HTTP/2 connections read more from the network than the caller asked for.
func TestReadAheadFramesOnly(t *testing.T) {
	for raw, want := range map[string]bool{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": true, "GET / HTTP/1.1\r\n\r\n": false, "": false} {
		c := newReplayed(&pieces{list: [][]byte{[]byte("01234567890123456789")}}, []byte(raw), nil)
		if _, err := io.ReadFull(c, make([]byte, len(raw))); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 12)); n != 12 || err != nil {
			t.Fatalf("connection that begins with %q: Read returned %d, %v", raw, n, err)
		}
		if ahead := c.ahead != nil; ahead != want {
			t.Errorf("connection that begins with %q: read ahead: %v, want %v", raw, ahead, want)
		}
	}
}
