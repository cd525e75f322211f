// Package http3 lets a client use HTTP/3. It is separate from package client because it depends on
// quic-go, which programs that do not use HTTP/3 do not need.
//
//	t := http3.New(nil)
//	defer t.Close()
//	c, err := client.New(client.Options{URL: "https://streams.example.com", Key: key, Transport: t})
package http3

import (
	"crypto/tls"
	"io"
	"net/http"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Transport is an HTTP/3 transport for [client.Options.Transport]. The caller must close it after
// its clients and publishers.
type Transport interface {
	http.RoundTripper
	io.Closer
}

// New returns a transport for https URLs. The configuration may name the certificate authority of
// the service. Nil means the defaults, which trust the system's CA certificates.
//
// The transport closes a dead connection after 5 seconds, so that a publisher can soon open
// another.
func New(t *tls.Config) Transport {
	return &http3.Transport{
		TLSClientConfig:    t.Clone(),
		DisableCompression: true,
		QUICConfig:         &quic.Config{HandshakeIdleTimeout: 5 * time.Second, MaxIdleTimeout: 5 * time.Second, KeepAlivePeriod: 2 * time.Second},
	}
}
