package server

import (
	"crypto/tls"
	"slices"
)

// TLS is what HTTPS needs beside an address.
type TLS struct {
	// GetCertificate picks the certificate of a handshake.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// Protocols are those that GetCertificate serves beside HTTP: a challenge of ACME.
	Protocols []string

	// ResetKey is a secret that outlives the process: with it, clients of a process that is gone are told so at once, and
	// need not wait until their HTTP/3 connections time out. Nil: they wait.
	ResetKey *[32]byte
}

// config is TLS 1.3, and 1.2 with suites that have forward secrecy and authenticate what they encrypt.
func (t TLS) config() *tls.Config {
	return &tls.Config{
		GetCertificate: t.GetCertificate,
		NextProtos:     slices.Concat([]string{"h2", "http/1.1"}, t.Protocols),
		MinVersion:     tls.VersionTLS12,
		CipherSuites: []uint16{ // of TLS 1.2; those of 1.3 are all sound
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384},
	}
}
