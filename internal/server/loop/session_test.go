package loop

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
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

// A session that receives far more than data is reported as odd before it has used much time: here
// every byte has a record of its own. Nothing is lost: the next reads return the rest.
func TestOddSession(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	s := NewSession(a, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}, SessionTicketsDisabled: true})
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
	if n == 0 || n == records || !more || err != nil || !s.isOdd(len(buf)) {
		t.Fatalf("the first read returned %d bytes, %v, %v, odd: %v; want some of them, and an odd session", n, more, err, s.isOdd(len(buf)))
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
