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

// minSecret is how long a secret must be: it is all that stands between a stranger and the data.
const minSecret = 32

// mutual makes TLS between nodes from what they all know. The secret gives the key of an authority, the same on every
// node; each node makes itself a certificate of it and trusts no other. Nothing has to be handed out, and who does not
// know the secret can neither join nor listen.
func mutual(secret []byte) (*tls.Config, error) {
	if len(secret) < minSecret {
		return nil, fmt.Errorf("the cluster's secret has %d bytes: at least %d are needed", len(secret), minSecret)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "weir cluster authority", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	authority := ed25519.NewKeyFromSeed(seed)
	// Certificates do not expire by the clock: the secret is what ends them.
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
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "weir node"}, NotBefore: from, NotAfter: to,
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
		// Nodes have addresses and no names: what counts is that the authority signed, which VerifyConnection looks at on
		// both sides.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("a node without a certificate")
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			return err
		},
	}, nil
}
