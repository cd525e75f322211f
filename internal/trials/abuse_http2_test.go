package trials

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is an HTTP/2 client that can send any sequence of frames, valid or not.
type frames struct {
	*http2.Framer
	conn net.Conn
	out  bytes.Buffer // frames written but not sent
	enc  *hpack.Encoder
	head bytes.Buffer
	last uint32 // number of the stream that dialHTTP2 has used; 0 if it has used none
}

// publishing is the end of the name of a protocol: the first request of the connection is a publish.
// Then an event loop serves the connection, and otherwise net/http probably does.
const publishing = " after a publish"

// dialHTTP2 opens a connection. See http2Protocols.
func (s *server) dialHTTP2(t testing.TB, proto string, settings ...http2.Setting) *frames {
	t.Helper()
	proto, publishes := strings.CutSuffix(proto, publishing)
	f := &frames{conn: s.dial(t, proto)}
	f.Framer = http2.NewFramer(&f.out, f.conn)
	f.AllowIllegalWrites = true
	f.enc = hpack.NewEncoder(&f.head)
	f.out.WriteString(http2.ClientPreface)
	f.WriteSettings(settings...)
	if publishes {
		f.last = 1
		f.publish(1, 0)
	}
	if err := f.send(); err != nil {
		t.Fatal(err)
	}
	return f
}

// send sends the frames written so far.
func (f *frames) send() error {
	_, err := f.out.WriteTo(f.conn)
	return err
}

// request writes a GET request. The parameter fields holds further header fields: a name, its
// value, the next name, its value, and so on.
func (f *frames) request(id uint32, path string, fields ...string) {
	f.head.Reset()
	fields = append([]string{":method", "GET", ":scheme", "http", ":path", path, ":authority", "x", "authorization", "Bearer " + liveKey}, fields...)
	for i := 0; i < len(fields); i += 2 {
		f.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.head.Bytes(), EndStream: true, EndHeaders: true})
}

// publish writes the start of a publish whose body has n bytes.
func (f *frames) publish(id uint32, n int) {
	f.head.Reset()
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/v1/streams/unknown"}, {":authority", "x"}, {"content-length", fmt.Sprint(n)}} {
		f.enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.head.Bytes(), EndStream: n == 0, EndHeaders: true})
}

// http2Protocols are the protocols for dialHTTP2: in clear text, and over TLS if the name begins with
// h2.
var http2Protocols = []string{"", "h2", publishing, "h2" + publishing}

// A flood of frames harms only the connection it arrives on.
func TestHTTP2Floods(t *testing.T) {
	if !*slow {
		t.Skip("takes minutes on two cores: -trials.slow runs it")
	}
	t.Parallel()
	s := serve(t, t.TempDir(), "--demo=false", "--rate-live", "0")
	p := newBystanders(t, s)
	a := &attack{T: t, s: s, p: p}
	a.rapidResets()
	a.continuations()
	a.frameFloods()
	p.progress(20)
	a.Wait()
	p.progress(5)
}

// rapidResets sends requests that are reset at once. Either the client resets them
// (CVE-2023-44487), or it provokes the server to reset them (CVE-2025-8671).
func (a *attack) rapidResets() {
	t, s, p := a.T, a.s, a.p
	resets := map[string]func(f *frames, id uint32){
		"client": func(f *frames, id uint32) { f.WriteRSTStream(id, http2.ErrCodeCancel) },
		"server": func(f *frames, id uint32) { f.WriteWindowUpdate(id, 0) },
	}
	for name, reset := range resets {
		for _, proto := range http2Protocols {
			f := s.dialHTTP2(t, proto)
			a.Go(func() { io.Copy(io.Discard, f.conn) })
			a.Go(func() {
				defer f.conn.Close()
				n := 0
				for id := f.last + 1 | 1; n < 5_000; n++ {
					if f.last > 0 && n%2 == 0 {
						f.publish(id, 100)
					} else {
						f.request(id, "/v1/streams/"+p.stream)
					}
					reset(f, id)
					if id += 2; n%100 == 99 && f.send() != nil {
						break
					}
				}
				t.Logf("protocol %q: %d resets by the %s", proto, n, name)
			})
		}
	}
}

// continuations sends a header block that never ends (CVE-2023-45288). The server must close the
// connection. For a block of empty pieces, the test does not check this.
func (a *attack) continuations() {
	t, s := a.T, a.s
	for _, size := range []int{0, 1000, 16000} {
		for _, proto := range http2Protocols {
			f := s.dialHTTP2(t, proto)
			f.request(f.last+2|1, "/v1/health")
			f.head.Reset()
			f.enc.WriteField(hpack.HeaderField{Name: "pad", Value: strings.Repeat("\x7f", size), Sensitive: true})
			block := f.head.Bytes()
			if size == 0 {
				block = nil
			}
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: block})
			ended := make(chan struct{})
			a.Go(func() {
				defer close(ended)
				io.Copy(io.Discard, f.conn)
			})
			a.Go(func() {
				defer f.conn.Close()
				var err error
				for n := 0; err == nil && n < 5_000; n++ {
					if f.WriteContinuation(5, false, block); n%10 == 9 {
						err = f.send()
					}
				}
				if size == 0 {
					return
				}
				select {
				case <-ended:
				case <-time.After(time.Minute):
					t.Errorf("protocol %q: the server accepts an endless header block in pieces of %d bytes", proto, size)
				}
			})
		}
	}
}

// frameFloods sends frames that need a reply, without reading the replies. It also sends frames of
// unknown types. The server closes a connection when too many replies are queued. Whether and when
// this happens depends on timing, so the test does not check it.
func (a *attack) frameFloods() {
	for _, write := range []func(f *frames){
		func(f *frames) { f.WritePing(false, [8]byte{}) },
		func(f *frames) { f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}) },
		func(f *frames) { f.WritePriority(1001, http2.PriorityParam{StreamDep: 7}) },
		func(f *frames) { f.WriteWindowUpdate(0, 1) },
		func(f *frames) { f.WriteRawFrame(0x0b, 0, 1, []byte("unknown")) },
		func(f *frames) { f.WriteData(1, false, nil) },
	} {
		for _, proto := range []string{"", publishing} {
			f := a.s.dialHTTP2(a.T, proto)
			f.conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			a.Go(func() {
				f.conn.SetWriteDeadline(time.Now().Add(lateness)) // sending may block, because the server may stop reading from the connection
				var err error
				for n := 0; err == nil && n < 60_000; n++ {
					if write(f); n%1000 == 999 {
						err = f.send()
					}
				}
			})
		}
	}
}

// zeroWindows sends requests and subscriptions with a flow-control window of zero. The server can
// respond with header fields but with no data, and must reset the HTTP/2 streams.
func (a *attack) zeroWindows() {
	t, s, p := a.T, a.s, a.p
	for _, proto := range http2Protocols {
		const n = 200
		f := s.dialHTTP2(t, proto, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range uint32(n) {
			if i%2 == 0 {
				f.request(f.last+2*i+1|1, "/v1/streams/"+p.stream)
			} else {
				f.request(f.last+2*i+1|1, "/v1/streams/"+p.stream+"?cursor=0", "accept", "text/event-stream")
			}
		}
		if err := f.send(); err != nil {
			t.Fatal(err)
		}
		a.Go(func() {
			if got, err := f.resets(n); got < n {
				t.Errorf("protocol %q: %d of %d streams were reset, then %v", proto, got, n, err)
			}
		})
	}
}

// resets counts the HTTP/2 streams that the server resets, until there are n. Meanwhile it answers
// pings.
func (f *frames) resets(n int) (int, error) {
	f.conn.SetDeadline(time.Now().Add(30*time.Second + lateness))
	for got := 0; ; {
		frame, err := f.ReadFrame()
		if err != nil {
			return got, err
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			if got++; got == n {
				return got, nil
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				f.WritePing(true, frame.Data)
				f.send()
			}
		case *http2.DataFrame:
			if frame.Length > 0 {
				return got, fmt.Errorf("received %d bytes with a window of zero", frame.Length)
			}
		}
	}
}
