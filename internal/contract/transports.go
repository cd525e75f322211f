package contract

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Transport is one version of HTTP, in clear text or over TLS.
type Transport struct {
	Name   string
	Secure bool // over TLS

	// Client creates a client that uses only this transport and trusts only the certificate
	// authorities in trust. If trust is nil, the client trusts those of the system.
	Client func(trust *x509.CertPool) *http.Client
}

// Transports are all transports that a service offers.
var Transports = []Transport{
	{"HTTP1", false, func(*x509.CertPool) *http.Client { return HTTP1() }},
	{"H2C", false, func(*x509.CertPool) *http.Client { return H2C() }},
	{"HTTP1TLS", true, func(trust *x509.CertPool) *http.Client {
		return client(trust, func(p *http.Protocols) { p.SetHTTP1(true) })
	}},
	{"HTTP2", true, func(trust *x509.CertPool) *http.Client {
		return client(trust, func(p *http.Protocols) { p.SetHTTP2(true) })
	}},
	{"HTTP3", true, func(trust *x509.CertPool) *http.Client {
		return &http.Client{
			Transport: &http3.Transport{
				TLSClientConfig: &tls.Config{RootCAs: trust}, DisableCompression: true,
				// All requests share one connection, and unread responses use up its receive
				// window. With the default window, a case that leaves responses unread would block
				// the other cases.
				QUICConfig: &quic.Config{MaxStreamReceiveWindow: 512 << 10, InitialConnectionReceiveWindow: 64 << 20, MaxConnectionReceiveWindow: 64 << 20},
			},
			CheckRedirect: noRedirect,
		}
	}},
}

// HTTP1 creates a client that uses only HTTP/1.1, in clear text.
func HTTP1() *http.Client { return client(nil, func(p *http.Protocols) { p.SetHTTP1(true) }) }

// H2C creates a client that uses only HTTP/2 in clear text, with prior knowledge.
func H2C() *http.Client { return client(nil, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }) }

func client(trust *x509.CertPool, set func(*http.Protocols)) *http.Client {
	var p http.Protocols
	set(&p)
	return &http.Client{
		Transport: &http.Transport{
			Protocols: &p, MaxIdleConnsPerHost: 256, DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: trust},
			ExpectContinueTimeout: time.Minute, // longer than any case: the client never sends a body that the server did not ask for
		},
		CheckRedirect: noRedirect,
	}
}

// noRedirect returns a redirect to the caller instead of following it. No endpoint may redirect, so
// the checks that run on every response report it as a fault.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
