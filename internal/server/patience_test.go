package server

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// A handler that sets a write deadline in the past stops the response. Over HTTP/1.1 the server
// then closes the connection, even if the handler was not writing at that moment, and even if it
// has set a later deadline since.
func TestStoppedResponseClosesConnection(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		io.WriteString(w, "x")
		control.Flush()
		control.SetWriteDeadline(time.Unix(1, 0))
		control.SetWriteDeadline(time.Now().Add(time.Hour))
	})
	for name, dial := range map[string]func() (net.Conn, error){
		"cleartext": func() (net.Conn, error) { return net.Dial("tcp", s.HTTP()) },
		"TLS":       func() (net.Conn, error) { return tls.Dial("tcp", s.HTTPS(), &tls.Config{RootCAs: trust}) },
	} {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(time.Minute)) // shorter than the idle timeout, after which the server would close the connection anyway
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if b, err := io.ReadAll(c); len(b) == 0 || isTimeout(err) {
			t.Errorf("%s: got %q and %v, want the start of the response and then the end of the connection", name, b, err)
		}
	}
}
