package loop

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"testing"
)

// tap is the connection of a client that keeps what it writes once the handshake is over.
type tap struct {
	net.Conn
	kept *bytes.Buffer
}

func (t *tap) Write(p []byte) (int, error) {
	if t.kept != nil {
		return t.kept.Write(p)
	}
	return t.Conn.Write(p)
}

// If a client sends every byte in a record of its own, the first read stops early and the session
// counts as costly. Nothing is lost: the next reads return the rest.
func TestCostlySession(t *testing.T) {
	web := httptest.NewUnstartedServer(nil) // has a certificate
	web.StartTLS()
	defer web.Close()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	s := NewSession(a, &tls.Config{Certificates: web.TLS.Certificates, SessionTicketsDisabled: true})
	wire := &tap{Conn: b}
	client := tls.Client(wire, &tls.Config{InsecureSkipVerify: true})
	shaken := make(chan error)
	go func() { shaken <- s.Handshake() }()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	wire.kept = new(bytes.Buffer)
	const records = 20_000
	for range records {
		client.Write([]byte("x"))
	}
	s.enter(func(p []byte) (int, error) {
		n, err := wire.kept.Read(p)
		if err == io.EOF {
			return -1, errLater
		}
		return n, err
	})
	buf := make([]byte, maxHead+MaxBody)
	n, more, err := s.read(buf)
	if n == 0 || n == records || !more || err != nil || !s.isCostly(len(buf)) {
		t.Fatalf("the first read returned %d bytes, %v, %v, costly: %v; want some of them, and a costly session", n, more, err, s.isCostly(len(buf)))
	}
	for more {
		m := 0
		if m, more, err = s.read(buf); err != nil {
			t.Fatal(err)
		}
		n += m
	}
	if n != records {
		t.Errorf("all reads returned %d bytes, want %d", n, records)
	}
}
