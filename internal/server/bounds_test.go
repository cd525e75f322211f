package server

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A client cannot make the server keep more than Options.Window bytes of a connection that no handler
// reads. Without that, a client could fill the memory with bodies that wait for their turn.
func TestWindow(t *testing.T) {
	const window = 100_000
	o := Options{HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Logger: quiet, Window: window}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(http.NotFoundHandler(), secured())
	defer s.Shutdown(t.Context())
	for name, dial := range map[string]func() (net.Conn, error){
		"H2C": func() (net.Conn, error) { return net.Dial("tcp", s.HTTP()) },
		"HTTP2": func() (net.Conn, error) {
			return tls.Dial("tcp", s.HTTPS(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		},
	} {
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(2 * time.Minute))
		io.WriteString(conn, http2.ClientPreface)
		c := http2.NewFramer(conn, conn)
		c.WriteSettings()
		c.WritePing(false, [8]byte{})
		stream, whole := uint32(0), uint32(1<<16-1)
		for answered := false; !answered; {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
					stream = v
				}
			case *http2.WindowUpdateFrame:
				whole += f.Increment
			case *http2.PingFrame:
				answered = true
			}
		}
		if stream != window || whole != window {
			t.Errorf("over %s, a client may send %d bytes in a stream and %d in a connection, want %d", name, stream, whole, window)
		}
	}
	for _, c := range []struct{ window, least, most int }{
		{0, quicFirstWindow, quicWindow}, {window, window, window}, {1, LeastWindow, LeastWindow}, {1 << 30, quicFirstWindow, quicWindow},
	} {
		o.Window = c.window
		if q := quicBounds(&o); q.InitialConnectionReceiveWindow != uint64(c.least) || q.MaxConnectionReceiveWindow != uint64(c.most) || q.MaxStreamReceiveWindow > uint64(c.most) {
			t.Errorf("with a window of %d bytes, HTTP/3 has %d to %d", c.window, q.InitialConnectionReceiveWindow, q.MaxConnectionReceiveWindow)
		}
	}
}
