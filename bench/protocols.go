package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// protocol is a way in which clients publish, other than cleartext HTTP/1.1.
type protocol struct {
	name        string
	tls, second bool // whether it uses TLS, and whether it is HTTP/2
}

var overProtocols = []protocol{{"HTTP/1.1 over TLS", true, false}, {"HTTP/2, cleartext", false, true}, {"HTTP/2 over TLS", true, true}}

// secureHello serves the handler of hello over TLS, and cleartext HTTP/2 at another address. It
// returns the two addresses.
func secureHello(h http.Handler) (secure, second string, err error) {
	cert, err := selfSigned()
	if err != nil {
		return "", "", err
	}
	a, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	b, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	s := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
	go s.ServeTLS(a, "", "")
	c := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	c.Protocols.SetHTTP1(true)
	c.Protocols.SetUnencryptedHTTP2(true)
	go c.Serve(b)
	return a.Addr().String(), b.Addr().String(), nil
}

// selfSigned returns a new certificate for 127.0.0.1.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}, err
}

// connect opens a connection for the protocol. TLS has been negotiated when it returns.
func (p protocol) connect(t *target) (net.Conn, error) {
	at := t.addr
	switch {
	case p.tls:
		at = t.secure
	case p.second && t.second != "":
		at = t.second
	}
	c, err := net.Dial("tcp", at)
	if err != nil || !p.tls {
		return c, err
	}
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}} // the certificate of a server that this program has started
	if p.second {
		config.NextProtos = []string{"h2"}
	}
	s := tls.Client(c, config)
	return s, s.Handshake()
}

// sharing is the number of publishers that share an HTTP/2 connection.
const sharing = 4

// publish measures a server under the given load over the protocol.
func (p protocol) publish(t *target, l publishLoad, span time.Duration) (row, error) {
	payload := body(l.Size)
	var publishers []func() error
	for len(publishers) < l.Connections {
		c, err := p.connect(t)
		if err != nil {
			return row{}, err
		}
		defer c.Close()
		if !p.second {
			one := &client{c, bufio.NewReaderSize(c, 4<<10)}
			r := request("POST", t.publishPath(0), t.key, payload)
			publishers = append(publishers, func() error { return one.do(r) })
			continue
		}
		h, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(c)
		if err != nil {
			return row{}, err
		}
		for range min(sharing, l.Connections-len(publishers)) {
			publishers = append(publishers, func() error { return p.post(h, t, payload) })
		}
	}
	r, err := work(publishers, l.Size, span, t.cpu)
	r.Workload, r.Contender = workload{l.Connections, l.Size, l.Streams}, t.name+", "+p.name
	return r, err
}

// post publishes once over an HTTP/2 connection.
func (p protocol) post(h *http2.ClientConn, t *target, payload []byte) error {
	scheme := "http://"
	if p.tls {
		scheme = "https://"
	}
	r, err := http.NewRequest("POST", scheme+"bench"+t.publishPath(0), bytes.NewReader(payload))
	if err != nil {
		return err
	}
	r.Header = http.Header{"Authorization": {"Bearer " + t.key}, "Content-Type": {"application/json"}}
	resp, err := h.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("%w: %s %s", errAnswer, resp.Status, b)
	}
	return err
}

// protocols compares publishing to Weir with a server that does nothing, over TLS and over HTTP/2.
// The server that does nothing sends empty responses, and then some that are as large as Weir's.
func protocols(dir string, rounds int, span time.Duration) ([]row, error) {
	two, stop, err := startTwo(dir, 1, "--https", "127.0.0.1:0")
	defer stop()
	if err != nil {
		return nil, err
	}
	answering := *two[0]
	answering.name, answering.streams = "answer", []string{"none"}
	three := []*target{two[0], &answering, two[1]}
	var rows []row
	for _, p := range overProtocols {
		fmt.Printf("\n%-28s %-22s %7s %10s %8s %8s %8s %8s\n", "publish over "+strings.TrimSuffix(p.name, ", cleartext"), "", "ratio", "req/s", "MB/s", "p50 ms", "p99 ms", "CPU us")
		for _, l := range []publishLoad{{64, 1 << 10, 1}, {1, 1 << 10, 1}} {
			got, err := takeTurns(l, len(three), rounds, func(i int) (row, error) { return p.publish(three[i], l, span) })
			if err != nil {
				return rows, err
			}
			rows = append(rows, got...)
		}
	}
	return rows, nil
}
