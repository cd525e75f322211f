package server

import (
	"crypto/tls"
	"net/http"
	"slices"
)

// TLS has the certificates and secrets for HTTPS.
type TLS struct {
	// GetCertificate returns the certificate for a handshake. It is called for every handshake,
	// concurrently.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// Protocols are additional ALPN protocols that GetCertificate handles, such as the ACME
	// challenge.
	Protocols []string

	// Strict tells browsers to use nothing but HTTPS for the host of this server during the next
	// year (HSTS). A browser then shows no way around an invalid certificate, so set it only for
	// certificates that browsers trust.
	Strict bool

	// ResetKey is a secret that is the same after a restart. With it, the server can tell HTTP/3
	// clients of a process that died that their connections no longer exist (stateless reset). If
	// it is nil, these clients wait until their connections time out.
	ResetKey *[32]byte
}

// strict adds the HSTS field to the responses of h, which must be sent over TLS.
func strict(h http.Handler) http.Handler {
	year := []string{"max-age=31536000"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Strict-Transport-Security"] = year
		h.ServeHTTP(w, r)
	})
}

// config allows TLS 1.3, and TLS 1.2 with cipher suites that have forward secrecy and authenticated
// encryption.
func (t TLS) config() *tls.Config {
	return &tls.Config{
		GetCertificate: t.GetCertificate,
		NextProtos:     slices.Concat([]string{"h2", "http/1.1"}, t.Protocols),
		MinVersion:     tls.VersionTLS12,
		CipherSuites: []uint16{ // for TLS 1.2; all suites of TLS 1.3 qualify
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384},
	}
}
