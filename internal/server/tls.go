package server

import (
	"crypto/tls"
	"net/http"
	"slices"

	"weir/internal/server/loop"
)

// TLS has the certificates and secrets for HTTPS.
type TLS struct {
	// GetCertificate returns the certificate for a handshake. The server calls it once per
	// handshake, from several goroutines at the same time.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// Protocols are additional ALPN protocols that GetCertificate handles, such as the ACME
	// challenge.
	Protocols []string

	// Strict tells browsers to use only HTTPS for the host of this server during the next year
	// (HSTS). A browser then does not let its user ignore an invalid certificate. So set Strict
	// only if browsers trust the certificates.
	Strict bool

	// ResetKey is a secret that stays the same across restarts. If the previous process died, the
	// server uses this secret to tell the HTTP/3 clients of that process that their connections no
	// longer exist (stateless reset). If ResetKey is nil, these clients wait until their
	// connections time out.
	ResetKey *[32]byte
}

// strict returns a handler that adds the HSTS field to the responses of h. Use it only for
// responses over TLS.
func strict(h http.Handler) http.Handler {
	year := []string{"max-age=31536000"}
	return adding(h, func(f http.Header) { f["Strict-Transport-Security"] = year })
}

// adding returns a handler that adds header fields to the responses of h. An event loop can use it
// in the same way as h.
func adding(h http.Handler, fields func(http.Header)) http.Handler {
	if l, ok := h.(loop.Later); ok {
		return addingLater{l, fields}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fields(w.Header())
		h.ServeHTTP(w, r)
	})
}

type addingLater struct {
	loop.Later
	fields func(http.Header)
}

func (a addingLater) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.fields(w.Header())
	a.Later.ServeHTTP(w, r)
}

// ServeLater implements loop.Later. If the request is not taken, the response writer is not used any
// more.
func (a addingLater) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	a.fields(w.Header())
	return a.Later.ServeLater(w, r)
}

// Flush implements loop.Flusher.
func (a addingLater) Flush() {
	if f, ok := a.Later.(loop.Flusher); ok {
		f.Flush()
	}
}

// config returns a configuration that allows TLS 1.3, and TLS 1.2 with the cipher suites that have
// forward secrecy and authenticated encryption.
func (t TLS) config() *tls.Config {
	return &tls.Config{
		GetCertificate: t.GetCertificate,
		NextProtos:     slices.Concat([]string{"h2", "http/1.1"}, t.Protocols),
		MinVersion:     tls.VersionTLS12,
		CipherSuites: []uint16{ // the list applies to TLS 1.2 only; TLS 1.3 has only such suites
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384},
	}
}
