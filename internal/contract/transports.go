package contract

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Transport is one way to speak HTTP.
type Transport struct {
	Name   string
	Secure bool // over TLS

	// Client makes a client that speaks nothing else. It trusts these authorities only; nil: those of the system.
	Client func(trust *x509.CertPool) *http.Client
}

// Transports are all that a service speaks.
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
				// A client that leaves some answers unread must give the connection more room than those take.
				QUICConfig: &quic.Config{MaxStreamReceiveWindow: 512 << 10, InitialConnectionReceiveWindow: 64 << 20, MaxConnectionReceiveWindow: 64 << 20},
			},
			CheckRedirect: anAnswer,
		}
	}},
}

// HTTP1 makes a client that speaks HTTP/1.1 only.
func HTTP1() *http.Client { return client(nil, func(p *http.Protocols) { p.SetHTTP1(true) }) }

// H2C makes a client that speaks HTTP/2 in clear text only, with prior knowledge.
func H2C() *http.Client { return client(nil, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }) }

func client(trust *x509.CertPool, set func(*http.Protocols)) *http.Client {
	var p http.Protocols
	set(&p)
	return &http.Client{
		Transport: &http.Transport{
			Protocols: &p, MaxIdleConnsPerHost: 256, DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: trust},
			ExpectContinueTimeout: time.Minute, // longer than any case waits: a body that was not asked for is not sent
		},
		CheckRedirect: anAnswer,
	}
}

// anAnswer takes a redirect for an answer like any other, and a wrong one.
func anAnswer(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
