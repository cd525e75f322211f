package embedded

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// minSecret is the minimum length of a secret in bytes. The secret alone protects the data against
// strangers who can reach the port.
const minSecret = 32

// mutual derives the TLS configuration between nodes from the shared secret. The secret yields the
// key of a certificate authority, which is the same on every node. Each node uses this authority to
// issue a certificate for itself, and trusts no other authority. So no certificate has to be
// distributed, and nodes without the secret cannot join or read traffic. The certificate names the
// node. If the function refused returns true for the name of a peer, the connection fails.
func mutual(secret []byte, name string, refused func(name string) bool) (*tls.Config, error) {
	if len(secret) < minSecret {
		return nil, fmt.Errorf("cluster secret is %d bytes: at least %d are needed", len(secret), minSecret)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "weir cluster authority", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	authority := ed25519.NewKeyFromSeed(seed)
	// The certificates are valid for a century. To invalidate them, the operator changes the
	// secret.
	from, to := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir cluster"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, authority.Public(), authority)
	if err != nil {
		return nil, err
	}
	if root, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if der, err = x509.CreateCertificate(rand.Reader, leaf, root, public, authority); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth: tls.RequireAnyClientCert,
		// The certificates contain no host names, so there is none to verify. VerifyConnection
		// checks on both sides that the authority signed the certificate, and this is all that
		// matters.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("peer sent no certificate")
			}
			peer := s.PeerCertificates[0]
			if _, err := peer.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
				return err
			}
			if refused(peer.Subject.CommonName) {
				return fmt.Errorf("node %s was removed from the cluster", peer.Subject.CommonName)
			}
			return nil
		},
	}, nil
}
