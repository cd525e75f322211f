// Package http3 carries the requests of a client over HTTP/3. It stands apart from package client because it brings quic-go
// along, which programs that do without HTTP/3 then do without.
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

// Transport is what [client.Options.Transport] wants. It must be closed.
type Transport interface {
	http.RoundTripper
	io.Closer
}

// New makes a transport for https addresses. The configuration is for the authority of the service's certificate, for example;
// nil trusts what the system trusts.
//
// A connection that is dead is given up after 5 seconds, so that a publisher soon makes another one.
func New(t *tls.Config) Transport {
	return &http3.Transport{
		TLSClientConfig:    t.Clone(),
		DisableCompression: true,
		QUICConfig:         &quic.Config{HandshakeIdleTimeout: 5 * time.Second, MaxIdleTimeout: 5 * time.Second, KeepAlivePeriod: 2 * time.Second},
	}
}
