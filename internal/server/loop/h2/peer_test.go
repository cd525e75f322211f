//lint:file-ignore SA1019 net/http has no function that serves a single connection

package h2

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is a client and the event loop of a connection at the same time: the test writes frames, passes
// them to the Conn, and reads what the Conn sends.
type peer struct {
	*http2.Framer
	t       *testing.T
	c       *Conn
	out, in bytes.Buffer
	block   bytes.Buffer
	encoder *hpack.Encoder
	server  http2.Server
	handler http.Handler  // answers the requests that pass through a tunnel
	woken   chan struct{} // has an element after Wake
	served  chan struct{} // gets an element when net/http has ended a tunnel
	tunnels int           // number of tunnels so far
	taken   []*Stream     // requests that Serve has taken
	refuses bool          // Serve takes no request
	acks    bool          // the method read does not skip the acknowledgement of settings
}

func newPeer(t *testing.T, settings ...http2.Setting) *peer {
	return newPeerOf(t, 100_000, settings...)
}

// newPeerOf returns a peer of a connection whose client may send so many bytes that were not read.
func newPeerOf(t *testing.T, window int32, settings ...http2.Setting) *peer {
	p := &peer{t: t, woken: make(chan struct{}, 1), served: make(chan struct{}, 10), handler: http.NotFoundHandler()}
	p.Framer = http2.NewFramer(&p.out, &p.in)
	p.AllowIllegalWrites = true
	p.ReadMetaHeaders = hpack.NewDecoder(tableSize, nil)
	p.encoder = hpack.NewEncoder(&p.block)
	p.server.MaxUploadBufferPerConnection, p.server.MaxUploadBufferPerStream = window, window
	p.c = New(p, &Limits{Window: int(window), Streams: 5, HeaderBytes: 5000, Body: 20_000})
	p.WriteSettings(settings...)
	t.Cleanup(func() {
		p.c.Close()
		for range p.tunnels {
			<-p.served
		}
	})
	return p
}

func (p *peer) Begin() bool       { return true }
func (p *peer) Body(n int) []byte { return make([]byte, 0, n) }

func (p *peer) Serve(s *Stream) bool {
	if p.refuses {
		return false
	}
	p.taken = append(p.taken, s)
	return true
}

func (p *peer) Wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

func (p *peer) Open(t *Tunnel) {
	p.tunnels++
	go func() {
		base := &http.Server{MaxHeaderBytes: 5000 - 10*32, ErrorLog: log.New(io.Discard, "", 0)}
		p.server.ServeConn(addressed{t}, &http2.ServeConnOpts{Handler: p.handler, BaseConfig: base, SawClientPreface: true})
		p.served <- struct{}{}
	}()
}

// addressed is a tunnel as a net.Conn.
type addressed struct{ *Tunnel }

func (addressed) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// pass passes what was written to the connection, in small pieces.
func (p *peer) pass() {
	p.t.Helper()
	var held []byte
	for b := p.out.Bytes(); len(b) > 0; {
		n := 1 + rand.IntN(min(len(b), 5000))
		held, b = append(held, b[:n]...), b[n:]
		held = held[p.c.Receive(held):]
	}
	p.out.Reset()
	for p.in.Write(p.c.Take()); p.c.IsBehind(); p.in.Write(p.c.Take()) {
		if p.c.IsFull() {
			<-p.woken
			p.c.Pull()
		}
		held = held[p.c.Receive(held):]
	}
	if len(held) > 0 {
		p.t.Fatalf("%d bytes were not used", len(held))
	}
}

// read returns the next frame that the connection sends, as text. It skips settings and updates of the
// window of the connection.
func (p *peer) read() string {
	p.t.Helper()
	for {
		for p.in.Len() == 0 {
			select {
			case <-p.woken:
				p.c.Pull()
				p.in.Write(p.c.Take())
			case <-time.After(time.Minute):
				p.t.Fatal("no frame")
			}
		}
		f, err := p.ReadFrame()
		if err != nil {
			p.t.Fatal(err)
		}
		id := f.Header().StreamID
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() && p.acks {
				return "acknowledged"
			}
		case *http2.MetaHeadersFrame:
			return fmt.Sprintf("%d status %s%s", id, f.PseudoValue("status"), end(f.StreamEnded()))
		case *http2.DataFrame:
			if len(f.Data()) > 20 {
				return fmt.Sprintf("%d %d bytes%s", id, len(f.Data()), end(f.StreamEnded()))
			}
			return fmt.Sprintf("%d data %q%s", id, f.Data(), end(f.StreamEnded()))
		case *http2.RSTStreamFrame:
			return fmt.Sprintf("%d reset %s", id, f.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Sprintf("away %s after %d", f.ErrCode, f.LastStreamID)
		case *http2.PingFrame:
			return fmt.Sprintf("ping %v", f.IsAck())
		case *http2.WindowUpdateFrame:
			if id != 0 {
				return fmt.Sprintf("%d window %d", id, f.Increment)
			}
		}
	}
}

func end(is bool) string {
	if is {
		return " end"
	}
	return ""
}

// expect reads frames and compares them.
func (p *peer) expect(want ...string) {
	p.t.Helper()
	for _, w := range want {
		if got := p.read(); got != w {
			p.t.Fatalf("got %q, want %q", got, w)
		}
	}
}

// silent checks that the connection sends nothing more.
func (p *peer) silent() {
	p.t.Helper()
	p.WritePing(false, [8]byte{})
	p.pass()
	p.expect("ping true")
}

// headers writes the start of a request. Fields are name and value in turn.
func (p *peer) headers(id uint32, ends bool, fields ...string) {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndStream: ends, EndHeaders: true})
}

// begin writes the start of a request whose body has n bytes.
func (p *peer) begin(id uint32, n int) {
	p.headers(id, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/x", "content-length", strconv.Itoa(n))
}

// post passes a whole request.
func (p *peer) post(id uint32, body string) {
	p.t.Helper()
	p.begin(id, len(body))
	p.WriteData(id, true, []byte(body))
	p.pass()
}

// next returns the oldest request that was taken and has no response.
func (p *peer) next() *Stream {
	p.t.Helper()
	if len(p.taken) == 0 {
		p.t.Fatal("no request was taken")
	}
	s := p.taken[0]
	p.taken = p.taken[1:]
	return s
}

func (p *peer) respond(s *Stream, body string) {
	s.Respond(200, []byte("X-A: b\r\n"), []byte(body))
	p.in.Write(p.c.Take())
}
