//lint:file-ignore SA1019 net/http has no function that serves a single connection

package h2

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// A Conn passes 141 of the 145 tests of h2spec. The others are one about the preface, which the event
// loop checks, one that needs the usual limit of the size of a frame, and two about header fields that
// are not allowed, to which net/http responds with a status instead of a reset. All requests of h2spec
// are GETs, so they pass through a tunnel.
func TestConformance(t *testing.T) {
	t.Parallel()
	find := exec.Command("go", "tool", "-n", "h2spec")
	find.Dir = "../../../../tools"
	h2spec, err := find.Output()
	if err != nil {
		t.Skipf("cannot build h2spec: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	base := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // a response before the end of the request could overtake the reset of a wrong request
		w.Write(bytes.Repeat([]byte("x"), 200))
	})}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go (&wire{Conn: c, base: base}).serve()
		}
	}()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	out, _ := exec.Command(strings.TrimSpace(string(h2spec)), "generic", "hpack", "http2", "--host", host, "--port", port, "--timeout", "10").CombinedOutput()
	if !bytes.Contains(out, []byte("145 tests, 141 passed")) {
		t.Errorf("%s", out)
	}
}

// wire serves a Conn on a network connection.
type wire struct {
	net.Conn
	base  *http.Server
	woken chan struct{}
}

func (w *wire) Begin() bool        { return true }
func (w *wire) Body(n int) []byte  { return nil }
func (w *wire) Serve(*Stream) bool { return false }

func (w *wire) Open(t *Tunnel) {
	go new(http2.Server).ServeConn(addressed{t}, &http2.ServeConnOpts{BaseConfig: w.base, SawClientPreface: true})
}

func (w *wire) Wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (w *wire) serve() {
	defer w.Close()
	if _, err := io.CopyN(io.Discard, w, int64(len(Preface))); err != nil {
		return
	}
	w.woken = make(chan struct{}, 1)
	c := New(w, &Limits{Window: 1 << 20, Streams: 250, HeaderBytes: 1 << 20, Body: MaxFrame})
	defer c.Close()
	arrived := make(chan []byte)
	over := make(chan struct{})
	defer close(over)
	go func() {
		defer close(arrived)
		for {
			b := make([]byte, 100_000)
			n, err := w.Read(b)
			if err != nil {
				return
			}
			select {
			case arrived <- b[:n]:
			case <-over:
				return
			}
		}
	}()
	var held []byte
	for {
		if _, err := w.Write(c.Take()); err != nil || c.IsOver() {
			return
		}
		select {
		case b, open := <-arrived:
			if !open {
				return
			}
			held = append(held, b...)
			held = held[c.Receive(held):]
		case <-w.woken:
			c.Pull()
		}
	}
}
