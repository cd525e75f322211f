package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/disk"
)

const (
	authorityFile = "ca.pem"
	authorityKey  = "ca.key"

	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 90 * 24 * time.Hour
	renewAfter    = leafLife / 3 * 2
	skew          = time.Hour // a certificate is valid from this long before it is issued, because the clocks of clients may be slow
)

// privateRanges lists private address ranges, which no public site has. The CA may sign only for
// addresses in these ranges, and for the names and addresses that it was created for, which always
// include "localhost". The certificate of the CA lists all of them as name constraints. So even a
// thief of the CA's key cannot impersonate other sites to clients that trust the CA.
var privateRanges = []string{
	"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10",
	"::1/128", "fc00::/7", "fe80::/10",
}

// Authority is a local CA that signs the certificate of this server, so that HTTPS works from the
// first start. Clients that trust the CA certificate (Path) trust the server. The CA persists in
// its directory. The server's certificate exists only in memory; a new one is issued at every start
// and before the current one expires. An Authority is safe for concurrent use.
type Authority struct {
	Path string // file with the CA certificate, for clients to trust

	names  []string
	logger *slog.Logger
	now    func() time.Time
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey

	mu    sync.Mutex
	leaf  *tls.Certificate
	renew time.Time
}

// OpenAuthority reads the local CA in a directory, or creates one if there is none. An existing CA
// that cannot be used is an error and is never replaced, because clients may trust it. The names
// are the host names and addresses of the server; empty and repeated ones are ignored.
func OpenAuthority(dir string, names []string, logger *slog.Logger) (*Authority, error) {
	return openAuthority(dir, names, logger, time.Now)
}

func openAuthority(dir string, names []string, logger *slog.Logger, now func() time.Time) (*Authority, error) {
	a := &Authority{Path: filepath.Join(dir, authorityFile), logger: logger, now: now}
	for _, n := range append([]string{"localhost", "127.0.0.1", "::1"}, names...) {
		n = strings.TrimSuffix(strings.ToLower(n), ".")
		switch {
		case n == "" || slices.Contains(a.names, n):
		case !isName(n):
			logger.Warn("left an invalid name out of the certificate: it is neither a host name nor an address", "name", n)
		default:
			a.names = append(a.names, n)
		}
	}
	err := a.load(filepath.Join(dir, authorityKey))
	if errors.Is(err, fs.ErrNotExist) {
		err = a.create(dir)
	}
	if err != nil {
		return nil, err
	}
	if end := a.cert.NotAfter; !now().Before(end) {
		return nil, fmt.Errorf("local CA %s expired on %s: remove it and %s to create a new one", a.Path, end.Format(time.DateOnly), authorityKey)
	}
	a.permitted()
	_, err = a.Get(nil)
	return a, err
}

var hostName = regexp.MustCompile(`^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$`)

// isName reports whether n is a valid host name or address, which a certificate can contain. A
// single invalid name would make clients reject the whole certificate.
func isName(n string) bool { return net.ParseIP(n) != nil || len(n) <= 253 && hostName.MatchString(n) }

// load reads the CA certificate and its key. It returns fs.ErrNotExist if there is no CA
// certificate. If only the key is missing, load returns a different error, so that no new CA is
// created: clients would not trust the new CA.
func (a *Authority) load(keyPath string) error {
	text, err := os.ReadFile(a.Path)
	if err != nil {
		return err
	}
	keyText, err := os.ReadFile(keyPath)
	if err != nil {
		return fmt.Errorf("read the key of local CA %s: %v; remove %[1]s to create a new CA", a.Path, err)
	}
	pair, err := tls.X509KeyPair(text, keyText)
	if err != nil {
		return fmt.Errorf("read local CA %s with key %s: %w", a.Path, keyPath, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return fmt.Errorf("read local CA: %s is not a CA certificate created by Weir", a.Path)
	}
	a.cert, a.key = pair.Leaf, key
	return nil
}

// create creates a CA. It writes the key before the certificate. After a crash between the two, the
// next start finds a key without a certificate, which no client can trust, and replaces it. In the
// other order, the next start could find a certificate without its key, and clients may already
// trust that certificate.
func (a *Authority) create(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial := newSerial()
	host, _ := os.Hostname()
	t := &x509.Certificate{
		SerialNumber: serial, NotBefore: a.now().Add(-skew), NotAfter: a.now().Add(authorityLife),
		Subject: pkix.Name{Organization: []string{"Weir"}, CommonName: strings.TrimSpace("Weir local authority " + host + " " + hex.EncodeToString(serial.Bytes()[:4]))},
		IsCA:    true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, // for TLS servers only
		PermittedDNSDomainsCritical: true,
	}
	for _, cidr := range privateRanges {
		_, r, _ := net.ParseCIDR(cidr)
		t.PermittedIPRanges = append(t.PermittedIPRanges, r)
	}
	for _, n := range a.names {
		if ip := net.ParseIP(n); ip == nil {
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, n)
		} else if !within(t.PermittedIPRanges, ip) {
			t.PermittedIPRanges = append(t.PermittedIPRanges, alone(ip))
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return fmt.Errorf("create local CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der) // never write a certificate that cannot be parsed
	if err != nil {
		return fmt.Errorf("create local CA: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create local CA: %w", err)
	}
	for _, f := range []struct {
		name, kind string
		der        []byte
		mode       fs.FileMode
	}{{authorityKey, "PRIVATE KEY", keyDER, 0o600}, {authorityFile, "CERTIFICATE", der, 0o644}} {
		if err := disk.Replace(filepath.Join(dir, f.name), pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), f.mode); err != nil {
			return fmt.Errorf("create local CA: %w", err)
		}
	}
	a.key, a.cert = key, cert
	return nil
}

// permitted removes names that the CA may not sign for. A single such name would make clients
// reject the whole certificate.
func (a *Authority) permitted() {
	var kept []string
	for _, n := range a.names {
		ip := net.ParseIP(n)
		ok := ip != nil && within(a.cert.PermittedIPRanges, ip)
		for _, d := range a.cert.PermittedDNSDomains {
			ok = ok || ip == nil && (n == d || strings.HasSuffix(n, "."+d))
		}
		if ok {
			kept = append(kept, n)
			continue
		}
		a.logger.Warn("left a name out of the certificate: the local CA was created without it; "+
			"remove its files to create a new CA, which clients must then trust", "name", n, "file", a.Path)
	}
	a.names = kept
}

// Get returns the certificate for a handshake. When two thirds of its lifetime have passed, Get
// issues a new certificate. It is meant for tls.Config.GetCertificate and ignores its argument.
func (a *Authority) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.leaf != nil && now.Before(a.renew) {
		return a.leaf, nil
	}
	leaf, err := a.sign(now)
	if err != nil {
		return nil, fmt.Errorf("sign server certificate: %w", err)
	}
	a.leaf, a.renew = leaf, now.Add(renewAfter)
	return leaf, nil
}

// sign issues a certificate for a.names. The certificate expires no later than the CA.
func (a *Authority) sign(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	end := now.Add(leafLife)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	t := &x509.Certificate{
		SerialNumber: newSerial(), NotBefore: now.Add(-skew), NotAfter: end,
		Subject:  pkix.Name{Organization: []string{"Weir"}, CommonName: "localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, n := range a.names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
